"""The consumer: what is fetched, and what of it a program may see."""
