"""Settled: agent tasks on Temporal, in which every write is done once, known not done, or openly unknown."""
