"""Pages about pods, gangs, queues, nodes and cards."""
