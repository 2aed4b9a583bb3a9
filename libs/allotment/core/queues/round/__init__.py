"""Batches in order: groups of pods, queues and quotas, as the policy's tiers have it.

`queues` decides on plain values; here these values are made from the state, the board is asked for
places, and what comes of it becomes an outcome that the log can hold. In force while the state
knows queues; without any, pods are placed one by one (`cycle.run_cycle`).

What others may use:

* `rounds.Rounds`: to run a round, or to open one session after the other on a state that moves on.
* `verdict`: what a round would say of a pod, a group or a queue, and who waits for quota. Plain
  values; explanations ask nothing else of the queues.
* `objections.objection`: why an outcome of a round may not be written any more.
* `deadlines.has_passed`: whether a group has waited as long as it may.
* `members.phase_of`: the phase of a group. `outcome.waiting_in`: the pods of a job that wait.

The views, totals, holds, books and victims of a round are its own.
"""
