"""The `allot` command: what the log says, on a screen or as JSON. Reads only, except up and down."""
