"""The import of Apache Kafka's own data directory: `odradek storage import`."""
