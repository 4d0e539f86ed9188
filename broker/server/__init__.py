"""The listener and its connections: requests in, answers out, and the memory they may hold."""
