"""Commands that start and stop local mode, create keys and certificates, and show versions."""
