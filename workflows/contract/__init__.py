"""The values that cross a boundary: what stands in history, in activity inputs and results, and on the command line."""
