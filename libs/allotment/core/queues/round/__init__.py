"""Rounds over groups and queues: batches in the order and quotas of the policy's tiers.

`queues` decides on plain values. This package makes these values from the state, asks the board for
places, and turns the result into an outcome for the log. It is used while the state has queues;
without any, pods are placed one by one (`cycle.run_cycle`).

* `rounds.Rounds` runs a round, or opens one session after the other on a state that moves on.
* `verdict` returns, as plain values, what a round would decide for a pod, a group or a queue, and
  which pods wait for quota. Explanations read the queues through it alone.
* `objections.objection` returns why an outcome of a round may no longer be written.

The totals, holds, books and victims of a round are private to it.
"""
