"""Smoke: a task on a real, small model, for who has one installed."""
