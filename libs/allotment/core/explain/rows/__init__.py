"""What answers are made of: their shapes, cluster objects as plain rows, and words for both."""
