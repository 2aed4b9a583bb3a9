"""What several pages have in common: how queries are read, cards drawn, and changes listed."""
