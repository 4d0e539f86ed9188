"""The metadata of the cluster: brokers, topics and leaders, and the store that keeps them."""
