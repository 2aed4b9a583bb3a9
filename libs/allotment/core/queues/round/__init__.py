"""Batches in order: groups of pods, queues and quotas, as the policy's tiers have it.

`queues` decides on plain values; here these values are made from the state, the board is asked for
places, and what comes of it becomes an outcome that the log can hold. In force while the state
knows queues; without any, pods are placed one by one (`cycle.run_cycle`).
"""
