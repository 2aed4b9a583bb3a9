"""Who comes next, and how much of the cluster whom it belongs to.

* `order`: single pods by priority and age, and which of them are due.
* `model`, `resources`, `answers`: what groups, queues and the cluster are, what is said of them.
* One file a plugin: `priority`, `gang`, `conformance`, `drf`, `proportion`, `capacity`, `card`
  (with `card_claims`, `card_names`), `overcommit`, `nodegroup`, `sla`. A new one is an entry in
  `registry.PLUGINS`.
* `votes`, `session`: how their answers become one, over the books of a round (`work`).
* `enqueue`, `allocate`, `backfill`: the actions. `reservations`: how big groups get their turn.
* `phases`, `texts`: what is said about groups and pods that wait.

Nothing here reads a clock or the log: a session is opened on a `View` and thrown away.
"""
