"""Tests of the operation protocol: its rules as an exhaustive model, its decisions, and the store that enforces it."""
