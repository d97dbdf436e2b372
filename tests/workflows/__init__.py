"""Tests of the room workflows/."""
