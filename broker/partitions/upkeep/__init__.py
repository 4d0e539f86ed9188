"""The upkeep of logs: flushes, checkpoints, retention, compaction, scrubbing, identities."""
