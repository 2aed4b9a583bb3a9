"""Gauges and histograms, read off the state, a session and the records.

What others may use:

* `cards`, `queues`: gauges of cards, and of queues and groups.
* `schedule`: how long pods and groups take. `histograms`: durations counted in buckets.
"""
