"""What the cluster is: its brokers, topics and leaders, and where that is kept."""
