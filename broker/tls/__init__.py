"""TLS of the broker: contexts that are checked and swapped, and the principals of certificates."""
