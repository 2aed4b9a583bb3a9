"""Gauges and histograms, read off the state, a session and the records.

What others may use:

* `cards`, `queues`: gauges of cards and nodes, and of queues and groups. `kept_cards`: those of
  cards, made again where something changed.
* `schedule`: what becomes of pods and groups and how long it takes, under Volcano's names and ours.
  `histograms`: durations counted in buckets.
"""
