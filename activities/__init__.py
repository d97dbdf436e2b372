"""Does, and judges whatever may change with a deploy."""
