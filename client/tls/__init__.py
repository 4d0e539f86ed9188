"""TLS of a side: its context, records on a non-blocking socket, and what errors mean."""
