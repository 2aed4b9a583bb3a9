"""The `allot` command: what the log says, on a screen or as JSON. Only up, down and demo act."""
