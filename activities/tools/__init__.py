"""The tool families: one file each, found when the worker starts."""
