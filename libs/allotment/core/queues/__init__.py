"""Who comes next, and how much of the cluster whom it belongs to.

What others may use:

* `order`, `turns`: single pods by priority and age, which of them are due, whose turn it is.
* `round`: a round over groups and queues, and what it would say (see there).
* `eligible`: for whom others are evicted. `phases`, `texts`: what is said about groups and pods.
* `model`, `resources`, `answers`: what groups, queues and the cluster are, and what plugins answer.
* `plugins`: one file a plugin; a new one is an entry in `registry.PLUGINS`.

Inner: `votes` and `session` make one answer of the plugins' over the books of a round (`work`,
`reckoning`, `shares`); `actions` are Volcano's enqueue, allocate and backfill; `reservations` say
how big groups get their turn; `limits` what a place must heed.

Nothing here reads a clock or the log: a session is opened on a `View` and thrown away.
"""
