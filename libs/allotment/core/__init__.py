"""What is decided. Pure functions and plain data: no clock, no dice, no I/O, no logging."""
