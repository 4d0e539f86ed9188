"""The measurements of `scripts/bench`: one module for each family of rows."""
