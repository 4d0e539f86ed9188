"""The counters of a broker for a Prometheus, and its health for an orchestrator."""
