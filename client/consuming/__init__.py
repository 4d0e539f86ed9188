"""The consumer: the fetching of records, and the choice of those that a program may see."""
