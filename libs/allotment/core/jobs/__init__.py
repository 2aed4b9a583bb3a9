"""Batch jobs: how a Job, a PodGroup and a Queue react to events. Pure: no clock, no randomness.

What others may use:

* `keys`, `model`: names on the wire, and the objects as they are read.
* `admission`: defaults of a Job and what is wrong with one.
* `sync`: what to do for a Job now. `status`: its status. `policies`: what its policies answer.
* `seats`, `pods`: which pods a Job should have, and what each is.
* `plugins`, `plugins.env`, `plugins.ssh`: what Job plugins need in addition to pods; an index,
  keys.
* `groups`, `queue_states`: PodGroups and the states of a Queue.
"""
