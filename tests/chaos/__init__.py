"""A storm over the real product, and the same storm over a plain Temporal activity. `make chaos`."""
