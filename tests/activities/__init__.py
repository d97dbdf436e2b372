"""Tests of the room activities/."""
