"""Log compaction: keep only the newest record of each key. Start reading at `cleaner.py`."""
