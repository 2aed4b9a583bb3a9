"""Where pods fit: a batch, and one pod node by node.

What others may use:

* `cycle`: a batch placed. `evaluator`: one pod, node by node. `least_busy`: where it need not wait
  long for a device plugin.
* `rules.predicates`: whether a pod fits on a node. `rules.scores`, `rules.terms`: how good the node
  is, and which plugins say so. `rules.switches`: which checks are on.
* `rules.points`, `rules.score_term`, `rules.nodeorder`, `rules.resource_shares`, `rules.relative`,
  `rules.images`: how points are counted, for the board, which counts the same.
* `rules.bounds`, `rules.local_volumes`: limits that a round sets, and those of volumes.
* `rules.attachments`, `rules.interpod`, `rules.selectors`: volumes, other pods, labels.
* `rules.card_names`, `rules.counted_cards`, `rules.models`: the names of cards in quotas, in
  labels, and in requests. `rules.card_book`: cards that a node lists twice.
* `devices`, `devices.base`: device families. `devices.choosing`, `devices.free`: which card of a
  node takes a request. `devices.foreign`: the names that other schedulers use.
* `policies`, `policies.base`, `policies.best_fit`, `policies.fill_ahead`, `policies.learning`,
  `policies.typical`, `policies.valued`: device policies, and what they learn of typical pods.
* `instances`, `unserved`: the smallest MIG instance that fits, what no node offers.

A pod gets no larger MIG instance than it needs. Binpack alone would prefer a large instance on a
card in use to a small one on an empty card. So where the best place gives an instance, the same
ranker runs again for smaller ones only, until none fits (`core/placement/instances.py`). This is
`best-fit` of `allotment.MigGeometryOrder`, the default of new policies; with `least-stranded`,
which older logs imply, and `listed`, scores decide alone.

Waste is not packing. A small pod gets an instance larger than it asked for, and that counts as in
use; binpack would prefer it to a share of the right size. So pods with devices have a score term
`fit`: 100 points a card that gives what is asked for, less by what it gives beyond
(`core/placement/rules/scores.py`). Its weight is that of the device points unless
`allotment.FitWeight` sets another (0: no such term).

An existing volume is allocated with the node. A claim of a class without provisioner waits for its
first consumer, and its volume can be reached from one node only. Facts about such a pod name the
volumes that each claim can use (`PodObserved.local_claims`, at most 256), a placement names those
that it gets (`Placement.volumes`). Within a cycle that is a bound like those of queues, a list of
nodes, which rules and board apply; the binder checks it again, and the fold voids what is allocated
twice (`core/placement/rules/local_volumes.py`). The binder writes the claim on the volume, waits
until the cluster's volume controller has bound both, and only then sends the Binding.
"""
