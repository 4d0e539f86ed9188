"""Settings: what they are, how files give them, the broker's and a topic's."""
