"""Whole tasks on a real server."""
