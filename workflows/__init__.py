"""Drives: the deterministic half. No I/O, no tool, no provider SDK, nothing of ours outside this room."""
