"""The partitions of one broker: what is appended, what readers may see, and their upkeep."""
