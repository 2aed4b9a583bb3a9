"""Who comes next: the order of pending pods, and which of them are due."""
