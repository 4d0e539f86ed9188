"""What `scripts/bench` measures: one module per family of rows."""
