"""Why a pod, a group or a queue is where it is, and what is wrong in the cluster.

What others may use:

* `pod_story`, `timeline`, `life`: one pod's story from its request to its end: collected from the
  log, worded, and its structs, from which explanations, `allot story` and traces are made. `spans`:
  the same as the spans of one trace.
* `pod.explain`, `gang.explain_gang`, `queue.explain_queue`, `node.explain_node`: explanations;
  `schema`: their shapes.
* `difference`: what differs between two states. `fitting`: whether pods that are not in the cluster
  would fit.
* `competition`: who else would have taken a pod when it was placed.
* `words`, `amounts`: what explanations say in words, for screens and pages.
* `doctor`: problems of the cluster.
* `concerned`: whom a record concerns, which records belong to one object, and an index of them.
* `story`, `records`: records in words, and what followed from one. `views`, `pod_views`: nodes,
  cards and pods as plain rows.
* `why`: the main cause for which a pod waits, in one sentence.
* `lives`: the lives of all pods at once, for traces that are exported while they happen.
* `preferences`: which kinds of preferences a policy ignores.
* `attempts`: attempts and waits counted by their reasons.
* `acknowledgement`: which bound pods a device plugin still has to serve; the binder paces by it.

Everything else is private. Nothing is decided here: `predicates.fits` and its checks answer for
nodes, `queues.round.verdict` for queues.
"""
