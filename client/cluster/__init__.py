"""The brokers as every client sees them: connections, metadata, retries and offsets."""
