"""Why pods wait, and what would end it: every answer is tried on the state."""
