"""Questions to a log, answered: where it is, folded to a moment, and what it says then."""
