"""Replay: recompute every decision of a log, and add up usage.

What others may use:

* `replay`: recorded decisions compared with recomputed ones, bit for bit.
* `again`: one recorded decision compared with the recomputed one.
* `otherwise`: what a decision would have been under another policy.
* `usage`: who used how much, and for how long.
"""
