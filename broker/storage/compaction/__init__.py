"""Log compaction: of every key only the newest record stays. `cleaner.py` says how."""
