"""Pages about the log: its records, its decisions, and what differs between two moments."""
