"""What the log says: the state, its one door, and the books of cards.

What others may use:

* `state`: the only way to change it. `model`, `ledger`: what it is made of, to be read.
* `snapshot`: a state as bytes. `check`: the books recomputed.
* `changes`: which names changed, for views that are kept.
* `claims`: what annotations say that a pod holds. `volumes`: what decisions gave to claims.
* `groups`: groups and queues as the log knows them. `pods`: whether a pod was turned away.
* `partitions`, `partitions.mig`: cards that are handed out in pieces.

The fold is the last referee. Facts (a node shrank, another scheduler bound a pod) land between
a binder's check and its append; compare-and-append does not see them, because it guards
decisions only. So `apply` checks the arithmetic of every placement once more, in log order: a
placement that its node's books do not cover is *void*. Nothing is reserved, the pod stays
pending, the binder does not bind it. The check is plain arithmetic (`state.covers`) and not the
predicates, so that a release with stricter rules folds an old log to what it meant.

The log outranks annotations. A pod's owner may edit or delete its annotations, so they are a
claim (`core/ledger/claims.py`). What a decision booked stays booked until an ending in the log.
A pod that others bound holds what it first claimed readably: the annotation says which cards,
the pod's own limits say how many and how much of each, so without limits it holds nothing, and
with a percentage (`shares_pct`) that of the memory of each card that it names. Where a claim
differs (`ClaimMismatch`) an Event on the pod says so, `allot doctor`, `allot log`, and the
gauge `allot_claim_mismatches`.

A pod that nobody can read blocks its cards, not the cluster. A pod that others bound, and that
holds devices which its annotations do not name readably, puts its node's cards in quarantine
(`CardsQuarantined`) until it is mended or gone; what can be read of it is charged. What kubelet
admitted it for it does occupy, and on which cards nobody can tell: to give out any of them
could give one card to two pods. An Event on the pod, `allot doctor` and `allot get nodes` name
it and the annotation. Its phase and its other annotations change nothing of that: a pod that
waits for an image has its cards already, and its owner writes the annotations. So whoever may
set `spec.nodeName` can keep the cards of the nodes that he names from others while his pod is
there; a cluster of several tenants should keep that field to its schedulers. A pod that could
not start makes its owner's next pod go to other cards if it can (`state.shunned`, by node,
family and card: chips are known by their numbers, and every node has a chip 0), until some pod
starts on them: a fact clears it, not a clock.
"""
