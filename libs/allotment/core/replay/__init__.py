"""Proof: every decision of a log made again, and its bookings kept apart.

What others may use:

* `replay`: recorded decisions compared with those made again, bit for bit.
* `again`: one recorded decision compared with the one made again.
* `otherwise`: what a decision would have been under another policy.
* `usage`: who used how much, and for how long.
"""
