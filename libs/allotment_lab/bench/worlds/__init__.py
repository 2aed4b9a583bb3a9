"""Synthetic clusters and logs that benches and tests run on."""
