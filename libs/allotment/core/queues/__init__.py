"""The order and the quotas of queues, groups and pods.

What others may use:

* `order`, `turns`: single pods by priority and age, which of them are due, whose turn it is.
* `round.rounds`: a round run. `round.verdict`: what it would decide. `round.objections`: why its
  outcome may no longer be written. `round.deadlines`, `round.members`, `round.outcome`: a group's
  time, its phase, which of its pods wait. `round.views`: groups and queues as plain values.
  `round.guaranteed`: what queues are guaranteed of the cluster. `round.quota`: what each has and
  may have.
* `session`, `work`, `reckoning`, `shares`: a round's working copies, and what each queue has.
* `model`, `resources`, `answers`: what groups, queues and the cluster are, and what plugins answer.
* `plugins.registry`, `plugins.base`: the plugins, and what one is. `plugins.drf`: the shares of
  groups. `plugins.card_claims`, `plugins.sla`, `plugins.task_topology`: the annotations of three.
* `eligible`: which pods may preempt. `phases`, `texts`: the conditions of groups and pods.
* `reservations`: what is held for big groups. `timings`: the steps of a round.

A plugin is one file of `plugins`; a new one is an entry in `PLUGINS` of its `registry`. Private:
`votes` combine the plugins' answers; `actions` are Volcano's enqueue, allocate and backfill;
`limits` are what a place must satisfy in addition to the request.

Plugins and actions decide on plain values and know no state, node, clock or log. `round` makes
these values from the state, asks the board for places, chooses victims, and turns the result into
an outcome for the log. While the log has queues, order and quota follow the tiers of
`volcano-scheduler.conf`; without any, pods are placed one by one by priority, turns of the
namespaces, and age.

A session undoes its changes when it closes, so jobs (`work`) and what they add to their queues'
books (`reckoning`) serve the next one, and only changed jobs are counted again. A working copy
(`work.Job`) is created only for jobs that a round tries, so thousands that wait or run cost a round
nothing.

A group's minimum is one of the `wholes` of a `Decided`: placed as a whole or not at all. Its other
pods come one by one, in turn with others.

Every pod belongs to a queue before it is placed. The watcher derives its PodGroup and queue
(`PodObserved.group`, `.queue`) from the pod's metadata and its namespace (`namespace_watch.py`,
`jobs/groups.py: queue_of`). A pod with an owner, a queue annotation, in a namespace with one, or
with an annotation that its PodGroup inherits waits for the PodGroup that the controller will create
(`GroupMissing`), so that quota, admission and minimum are never those of another queue. For any
other pod (`jobs/groups.py: is_lone`) a PodGroup would add nothing, so none is needed: the pod is
judged as its PodGroup would be (`queues/round/members.py: single_of`), in queue `default`, with the
priority of its class, and admitted for one round at a time. With `group-lone-pods` the controller
creates one anyway; a pod that has a place, or room reserved by evictions, then counts as admitted.
A PodGroup created for pods has no part in the order while it has none, and one without an owner is
promised nothing before it has pods. Without PodGroups (`group-pods` false, for the watcher too) the
pod's own queue annotation counts, then its namespace's. A pod that has a node stays in the queue in
which it was placed.

Priorities: `volcano.sh/task-priority` orders the pods of one job only. Among jobs the PriorityClass
counts, also for a lone pod (`PodObserved.class_priority`). A PodGroup's class counts as far as its
pods have it: any user may write any class into a PodGroup, and Kubernetes checks only the class of
pods (`ledger/groups.py: group_priority`).

Every waiting pod gets a reason. The reason why a PodGroup is not admitted is on its pods as well
(`PodScheduled=False`, which cluster autoscalers read). If a gang finds no room, the members that
were not tried get the kind of reason without its counts, so that it is written once. A group
without an existing queue, or a pod without an existing PodGroup, is in no queue's order: it comes
into a batch once, for its reason (at most a quarter of a batch), and again when something about it
changed.

Admission promises block no other pods. In Volcano an admitted group counts for all that it may
ever ask for until it runs, so one Job that fits nowhere blocks an empty cluster. Here it counts
until its pods were tried, for at most two moments (`TimePassed`, `ledger/groups.py: promises_age`),
and only against groups of its own namespace whose pods are still to be created
(`work.Job.counts_promises`). Quota is checked for every pod as it is placed. If the cluster is full
without a quota being the cause, groups that outrank running pods are admitted, so that they can
preempt.

Time is recorded: "now" is the newest moment in the log. The watcher checks the clock every 0.9 s
and appends a `TimePassed` when a deadline passes (`round.deadlines`) and as long as a group has a
promise.

Bounds (node groups of a queue, cards with quota, what is held for others) travel with a pod's
request through a round (`core/placement/rules/bounds.py`), so predicates, counts and explanations
apply them without knowing queues. They are not part of the pod or the log and are not rechecked
with the decision. What is held is checked last, so its count is that of the nodes that would fit
otherwise.

Namespaces take turns. In Volcano, jobs that its plugins do not order go by creation time, so a
namespace with 5,000 older pods would get everything that becomes free. Here the namespaces take
turns instead, and creation time decides within a namespace. `allotment.NamespaceTurnsEnable: false`
restores Volcano's order. Two things take turns:

* *Tries* (`allotment_filter/lines.py`): a namespace that had a pod in a batch goes behind the
  others of its level. This is memory of the filter and may be lost, because a decision records its
  batch.
* *Places* (`queues/turns.py`), in enqueue, allocate, backfill and preempt: the namespace that was
  served longest ago comes first. That follows from the log (`ClusterState.served`), so scorer,
  binder, replay and `allot explain` agree on it.

Rejected groups do not starve others: groups that are due take turns over the queues, and a quarter
of each batch is for groups without a turn since something last happened. A big group that others
overtook too often gets a hold (`reservations`).

Preemption frees what is needed, on copies of the nodes' books (`round/victims.py`). A pod that its
owner deletes slowly counts as running until a minute before its deadline, and can be evicted; an
evicted pod gets at most ten minutes. One that still exists a minute after its deadline is given up,
because its node may not answer (`core/ledger/evictions.py`).

Room freed by an eviction is reserved for the preemptor: what nominated pods need on their nodes, as
an amount and not the node (`round/kept.py`), and their part of the quota. Only jobs of their queue
that outrank them may use it, until a decision tried them there with the last victim gone. Other
queues may not use it whatever their rank, or a queue that gave back what it had borrowed would take
it again. Nominated pods are tried on their own nodes first. A place that a fact took away ends the
nomination.
"""
