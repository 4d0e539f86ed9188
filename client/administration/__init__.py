"""Administration: topics, settings, offsets and transactions."""
