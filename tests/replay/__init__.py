"""Recorded histories, and the check that this release replays them."""
