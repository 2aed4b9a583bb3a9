"""Why a pod, a group or a queue is where it is, and what is wrong in the cluster.

What others may use:

* `pod.explain`, `gang.explain_gang`, `queue.explain_queue`, `node.explain_node`: explanations.
* `difference`: what differs between two states. `fitting`: whether pods that are not in the cluster
  would fit.
* `doctor`: problems of the cluster.
* `history.pod_story`, `history.timeline`: one pod's story from its request to its end.
  `history.spans`: the same as the spans of one trace. `history.lives`: the lives of all pods at
  once, for traces that are exported while they happen.
* `history.story`, `history.records`: records in words, and what followed from one.
  `history.concerned`: whom a record concerns, which records belong to one object, and an index of
  them. `history.attempts`: what a decision says of each pod, and waits by their reasons.
* `causes.why`: the main cause for which a pod waits, in one sentence. `causes.competition`: who
  else would have taken a pod when it was placed.
* `rows.schema`, `rows.life`: the shapes of explanations and of a pod's life. `rows.views`,
  `rows.pod_views`: nodes, cards and pods as plain rows. `rows.words`, `rows.amounts`: what they
  say, for screens and pages.
* `rows.acknowledgement`: which bound pods a device plugin still has to serve; the binder paces by
  it. `rows.preferences`: which kinds of preferences a policy ignores.

Everything else is private. Nothing is decided here: `predicates.fits` and its checks answer for
nodes, `queues.round.verdict` for queues.
"""
