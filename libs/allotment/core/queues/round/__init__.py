"""Batches in order: groups of pods, queues and quotas, as the policy's tiers have it.

`queues` decides on plain values; here these values are made from the state, the board is asked for
places, and what comes of it becomes an outcome that the log can hold. In force while the state
knows queues; without any, pods are placed one by one (`cycle.run_cycle`).

* `rounds.Rounds` runs a round, or opens one session after the other on a state that moves on.
* `verdict` says what a round would say of a pod, a group or a queue, and who waits for quota.
  Plain values; explanations ask nothing else of the queues.
* `objections.objection` says why an outcome of a round may not be written any more.

The totals, holds, books and victims of a round are its own.
"""
