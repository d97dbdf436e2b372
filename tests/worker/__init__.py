"""Tests of the room worker/."""
