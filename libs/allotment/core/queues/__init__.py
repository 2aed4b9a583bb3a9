"""Whose turn it is: the order and the quotas of queues, groups and pods.

What others may use:

* `order`, `turns`: single pods by priority and age, which of them are due, whose turn it is.
* `round.rounds`: a round run. `round.verdict`: what it would say. `round.objections`: why its
  outcome may not be written any more. `round.deadlines`, `round.members`, `round.outcome`: a
  group's time, its phase, who of it waits. `round.views`: groups and queues as plain values.
  `round.guaranteed`: what queues are guaranteed of the cluster.
* `session`, `work`, `reckoning`, `shares`: a round's working copies, and what each queue has.
* `model`, `resources`, `answers`: what groups, queues and the cluster are, and what plugins answer.
* `plugins.registry`, `plugins.base`: the plugins, and what one is. `plugins.capacity`,
  `plugins.card`, `plugins.drf`, `plugins.proportion`: those whose shares are shown.
  `plugins.card_claims`, `plugins.sla`, `plugins.task_topology`: what annotations ask of three.
* `eligible`: for whom others are evicted. `phases`, `texts`: what is said about groups and pods.
* `reservations`: what is held for big groups. `timings`: what a round is through with.

A plugin is one file of `plugins`; a new one is an entry in `PLUGINS` of its `registry`. Inner:
`votes` make one answer of the plugins' over a round's books; `actions` are Volcano's enqueue,
allocate and backfill; `limits` say what a place must heed.

Nothing here reads a clock or the log: a session is opened on a `View` and thrown away.

While the log knows queues, order and quota go by the tiers of `volcano-scheduler.conf`; without
any, pods are placed one by one by priority, turns of the namespaces, and age. Nothing else
differs: the same cycle, the same decision, the same fold.

* `core/queues/` decides on plain values: one file a plugin (priority, gang, drf, proportion,
  capacity, capacity-card, overcommit, nodegroup, sla, conformance), the rules by which their
  answers combine (`votes`, `session`), the actions enqueue and allocate. It knows no state, no
  node and no clock.
* `core/queues/round/` makes these values from the state (`views`, kept from round to round
  where nothing changed), asks the board for places (`places`, `bounding`), chooses victims
  (`victims`) and turns a round (`rounds`) into an outcome for the log (`outcome`). What a round
  would say of a pod, a group or a queue is a value (`verdict`): explanations ask nothing else
  of the queues.
* A session takes back all that it changed when it is closed, so its jobs (`queues/work`) and what
  they add to their queues' books (`queues/reckoning`) serve the next one: only jobs that changed
  are counted anew, from their views. A pod without a PodGroup is a job of one, and goes the same
  way as every other. A working copy (`work.Job`) is made of a job that a round tries, so thousands
  that wait or run cost a round nothing. The filter keeps those that wait in lines (`lines.py`) and
  looks at the heads.
* The **filter** chooses which groups are due: something happened since they were tried that may
  help them. Of those that were refused it asks nodes and queue about one for all that ask the same,
  and leaves the others out until something changes that could help (`allotment_filter/parked.py`).
  It opens no session while nothing can be due, and lets pods gather between cycles for as long as
  a cycle takes. The **scorer** runs the round on one state; the **binder**
  checks it again and appends it. So a round can be run again from the log like any decision.
  A round calls an `OnStep` after each of its steps; the scorer's has a clock, the core none.

A gang is atomic in the log. The placements that make up a group's minimum are one of the
`wholes` of a `Decided`: the scorer places them or gives all back, the binder drops all if one
no longer fits, and the fold voids all if a fact that landed in between takes the room of one.
What a group has beyond its minimum comes pod by pod, in turn with others. Two gangs cannot hold
a part each, so they cannot wait for each other.

No pod is placed by accident of timing. The controller makes PodGroups while pods are being
scheduled, so the watcher tells from a pod's own metadata and the queue that its namespace names
(`namespace_watch.py`, `jobs/groups.py: queue_of`) where it will belong (`PodObserved.group`,
`.queue`). A pod with an owner, a queue annotation, in a namespace with one, or with an
annotation that is handed down belongs to the PodGroup that will be made for it, and waits for
that (`GroupMissing`): quota, gate and minimum are never those of another queue. Of any other
pod (`jobs/groups.py: is_lone`, which the controller asks as well) the PodGroup would say
nothing that the pod does not. It is judged as that PodGroup would be (`queues/round/members.py:
lone`): in queue `default`, at its gate, with the priority of its class. It is let in for one
round at a time. So the controller makes no PodGroup for it. Where it is told to
(`group-lone-pods`), a pod's place, or the room that is made for it, counts as let in when it is
tied to its PodGroup, and while many such pods wait for the scheduler's first word their
PodGroups are made afterwards (`allotment_controller/backlog.py`). A PodGroup made for pods has
no part in the order while it has none, and one that nobody owns is promised nothing before it has
pods. Where no PodGroups are made (`group-pods` false, for the watcher too) pods are judged by
their own queue annotation, then their namespace's. Both services hear of a namespace before
they deal with the first pod in it; a pod that has a node stays in the queue in which it was
placed there.

An annotation about priority stays in the family. `volcano.sh/task-priority` orders the pods of
one job. Among jobs the PriorityClass counts, also for a pod alone (`PodObserved.class_priority`
where the two differ).

Every pod that waits is told why. What the gate of its queue answers a PodGroup stands on its
pods as well (`PodScheduled=False`: cluster autoscalers go by it), and if a gang finds no room
the members that were not tried hear the kind of reason without its counts, so that they hear it
once.

Big gangs are not starved. A group that was refused counts the pods that were placed past it,
but for those that outrank it; after 64, if it needs several pods or cards at once, a row of
nodes (or its queue's quota) is held for it, which only jobs that outrank it may use
(`queues/reservations.py` has the rule and why it is enough). Holds are part of the log. Small
jobs fill the rest of the cluster meanwhile.

A promise keeps nobody out who could start. In Volcano a group that was let in counts at the gate
for all that it may ever ask for, until it runs: one Job that fits nowhere keeps everybody out of
an empty cluster. Here it counts until its pods were tried, for two moments (`TimePassed`) at most,
and only at the gate of groups of its own namespace whose pods are still to be made
(`work.Job.counts_promises`, `ledger/groups.py: promises_age`). So a namespace has the pods of its
Jobs made one Job after the other, and nobody waits for what another namespace was promised. What
limits a queue is asked of every pod as it is placed. Where it is the cluster that is full and no
quota, nodes say so, and who outranks others passes the gate, so that these can be evicted.

A PodGroup's class counts as far as its pods have it. Anybody may write any class into a PodGroup;
Kubernetes looks at the class of pods alone (`ledger/groups.py: group_priority`).

Time is recorded. A round reads no clock: "now" is the newest moment that the log tells of. The
watcher looks at the clock every 0.9 s, and appends a `TimePassed` when the time of somebody who
waits is up, where the plugin `sla` lets groups wait for so long only, and as long as something is
promised to a group. So others are let in although nothing else happens, and replay knows when.

Bounds are asked like a pod's own wishes. Which node groups a queue may use, the cards for which
there is quota, and what is held for others travel with the request through a round
(`core/placement/rules/bounds.py`), on both roads: predicates, counts and explanations heed them
without knowing queues. They are no part of the pod or of the log, and not asked again when the
decision is checked. What is held is asked last, so its count is that of the nodes that would
do, and the refusal says for whom they are held.

Who has no part in the order is told so. A group whose queue does not exist and a pod whose
PodGroup does not exist are in no queue's turn. They come into a batch once, to be told (a
quarter of a batch at most), and again when something about them changed. What such a group has
keeps running.

Refused groups do not starve others. Groups that are due take turns over the queues; a quarter
of each batch is for groups that had no turn since something last happened, so that those in
front that are refused again and again do not take every batch.

Namespaces take turns. Volcano orders jobs by its plugins, and where they tie by creation time
and UID; so a namespace with 5,000 older pods would get everything that becomes free before
another one gets a place. Here the plugins decide as in Volcano (priority, gang, drf, sla).
Where they tie the namespaces take turns, and creation time decides within a namespace. Without
queues only the priority counts before turns. Two things take turns:

* *Who is tried* (`allotment_filter/lines.py`): a namespace of which a batch had somebody goes
  behind the others of its level. So the next pod of any namespace is in a batch after at most
  one pod of each other namespace. This is memory of the filter and may be lost: a decision
  records its batch.
* *Who is given a place first* (`queues/turns.py`), at the gate, in allocate, backfill and
  preempt: the namespace that was given something longest ago. That follows from the log
  (`ClusterState.served`), so scorer, binder, replay and `allot explain` agree on it. The
  filter's memory would not do: where all that wait are tried in every round, being tried means
  nothing.

`allotment.NamespaceTurnsEnable: false` goes by creation time alone, as Volcano does.

Preemption frees what is needed. Victims are chosen on copies of the nodes' books, one node at a
time, until the pod really fits there; who need not go after all is spared. Other groups of the
queue are asked first, then lower pods of the same group, then other queues. A group gets
victims for all that it lacks or none. Nobody is placed by an eviction: the decision nominates
the group's pods for the nodes that were found.

A pod that is being deleted is waited for only near its deadline. One that its owner deletes slowly
counts as running until a minute before, and can be evicted; an evicted pod gets at most ten
minutes. One that is still there a minute after its deadline is given up: its node may not answer,
and others are evicted instead (`core/ledger/evictions.py`).

Room freed by an eviction is reserved for the preemptor. What nominated pods need on their nodes
(cards and host resources, `round/kept.py`), and their part of the quota, is kept from all but
jobs of their queue that outrank them, until a decision tried them there with the last victim gone
(`core/ledger/evictions.py`). Other queues have no claim to it whatever their rank, or a queue that
gave back what it had borrowed would take it again. Nominated pods are tried on their own nodes
first. Several may be nominated for one node, since what is kept is an amount there and not the
node. So nobody is evicted twice for one place, however many preemptors come at once, however fast
victims are made anew and whoever comes first in the round. A place that a fact took away ends the
nomination, and what was kept is there for others.
"""
