"""What the log says: the state, its one door, and the books of cards.

What others may use:

* `state`: the only way to change it. `model`, `ledger`: what it is made of, to be read.
* `snapshot`: a state as bytes. `check`: the books recomputed.
* `changes`: which names changed, for views that are kept.
* `claims`: what annotations say that a pod holds. `volumes`: what decisions gave to claims.
* `groups`: groups and queues as the log knows them. `pods`: whether a pod was turned away.
  `health`: which moments the log must record, and which pods device plugins do not serve.
* `evictions`: which pods that are deleted or evicted are waited for, and how long they may take.
* `segments`: which stretches of the log are closed, with a checkpoint, and which is open.
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

A pod whose claim is unreadable costs its share, not the node. It holds devices, for kubelet
admitted it, and its annotations do not name them readably; its limits still say how many and how
much of each (`PodObserved.unplaced`). So until it is mended or gone each of its requests counts
once on every card of the family that it can be on (`ledger.on_any_card`). That is enough: a request
has no card twice. And nothing less is: if one of these cards kept no room for it, that may be the
one. So a small share costs a small share of each card, and the rest is given out, except to pods
that want a card alone; whole cards cost all cards of the family on that node, however few they are,
because it is unknown which. What looks like evidence is none: its phase (a pod that waits for an
image has its cards already), its other annotations (its owner writes them), and what others hold
(who handed it out did not ask our books). Of cards that are cut nothing bounded is safe: an
instance has one holder, and each free one may be taken, so such a card gives nothing new; a chip
that is cut by one template counts one piece more. What is booked so is marked (`Card.perhaps`), is
not the first readable claim, does not make a card oversold, and counts once for the queue. An Event
on the pod, `allot doctor`, `allot ledger` and `allot get nodes` say it (`ClaimUnreadable`).

The node's cards are closed to all (`CardsQuarantined`) only where the pod's requests are unknown,
too: if the object itself cannot be read.

A pod that could not start makes its owner's next pod go to other cards if it can
(`state.avoided`, by node, family and card: chips are known by their numbers, and every node has a
chip 0), until some pod starts on them: a fact clears it, not a clock. Nodes and cards that turn
away pods of several owners, or on which they die as they start, are held back (`health.py`).
"""
