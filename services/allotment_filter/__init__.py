"""The filter: which pods are due, in which order, in batches.

Refusals are said once. A refusal with the very counts of the pod's last one is left out of the
log, the condition and the Events. A refused pod waits for an event that could change the answer
(room appeared, the policy or the pod changed), not for a clock. Where every node refuses it for
what no room cures (a label, a taint, a model, a mode), only a change of a node or of the policy
is such an event, and not that somebody's pod ends (`reasons.LASTING`). Pods whose Binding
failed wait with a growing delay in the filter's memory: delays decide how fast things go, never
whether they are right.

Work follows change. What costs is looked at where something happened, not all over for every
batch: the filter keeps its order of pending pods sorted as records come (`waiting.py`) and
counts a class of pods again only when so much changed that it may fit nowhere now
(`feasibility.py`; a change concerns one node, so it takes at most one from the nodes that fit); the
binder's
`Pacer` looks at the pods that a record names. Columns follow the log when nobody waits for
them: the filter's while a cycle is under way, the scorer's while it waits for one. Beside each
of these is a version that looks at everything, and a test holds the two equal. Groups leave a
*trail* in the state (`core/ledger/changes.py`): who keeps something about them asks it for the
names since his last look.

A pod on which deciding fails waits by itself. If scorer or binder raise an error about a cycle,
the binder answers `failed`, and the filter proposes half as many pods until one pod or group is
left. That one waits, up to 60 s, is named on `/readyz` and told so (`DecisionFailed`); with
every cycle that comes to its end batches grow again.
"""
