"""What became of pods, from the records of the log."""
