"""Networks and their weights."""
