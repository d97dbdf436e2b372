"""Meets: settings, wiring, the process and the command line. The only room that knows everybody."""
