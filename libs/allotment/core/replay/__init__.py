"""Proof: every decision of a log made again, and its bookings kept apart.

What others may use:

* `replay`: recorded decisions compared with those made again, bit for bit.
* `again`: one recorded decision compared with the one made again.
* `otherwise`: what a decision would have been under another policy.
* `picture`: who holds what at one sequence, to compare two ways of counting.
* `journal`, `journal.usage`: bookings in packed rows, and who used how much for how long.
"""
