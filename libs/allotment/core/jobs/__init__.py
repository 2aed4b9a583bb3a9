"""Batch jobs: what a Job, a PodGroup and a Queue make of what happens. Pure: no clock, no dice."""
