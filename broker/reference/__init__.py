"""Pages of the reference that are generated from declarations."""
