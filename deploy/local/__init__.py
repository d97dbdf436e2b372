"""The embedded default: everything a task needs, on one machine and with nothing to set up."""
