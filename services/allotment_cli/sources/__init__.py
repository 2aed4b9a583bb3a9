"""Where answers come from: a log, live or exported, folded to a moment; the API server."""
