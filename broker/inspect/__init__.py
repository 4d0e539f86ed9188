"""Reading and mending a stopped broker's files: `odradek log` and `odradek storage`."""
