"""Gauges and histograms, read off the state, a session and the records.

What others may use:

* `cards`, `queues`: gauges of cards and nodes, and of queues and groups. `kept_cards`: those of
  cards, made again where something changed.
* `schedule`, `durations`: how long pods and groups take, under Volcano's names and under our own.
  `histograms`: durations counted in buckets.
"""
