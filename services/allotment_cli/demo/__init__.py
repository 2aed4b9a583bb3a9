"""The command `allot demo`: the examples in local mode, explained from the log."""
