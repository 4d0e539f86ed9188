"""The declarations of the APIs. `broker/api/` says which of them are served."""
