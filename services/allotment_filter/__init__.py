"""The filter: which pods are due, in which order, in batches.

A refusal is recorded once. One with the same counts as the pod's last refusal is left out of the
log, the condition and the Events. A refused pod waits for an event that could change the answer
(room appeared, the policy or the pod changed), not for a clock. If every node refuses it for a
reason that free capacity does not cure (a label, a taint, a model, a mode), only a change of a node
or of the policy is such an event; the end of another pod is not (`reasons.LASTING`). Pods whose
Binding failed wait with a growing delay in the filter's memory: delays affect speed, never
correctness.

Work follows change. What costs is looked at where something happened, not all over for every
batch: the filter keeps its order of pending pods sorted as records come (`waiting.py`) and
counts a class of pods again only when so much changed that it may fit nowhere now
(`feasibility.py`; a change concerns one node, so it takes at most one from the nodes that fit); the
binder's
`Pacer` looks at the pods that a record names. Columns follow the log when no work
waits for them: the filter's while a cycle is under way, the scorer's while it waits for one. Each
of these also has a version that looks at everything, and a test checks that both agree. Groups
leave a *trail* in the state (`core/ledger/changes.py`): code that keeps data about groups
reads from it the names that changed since its last look.

A pod whose decision fails waits by itself. If scorer or binder raise an error about a cycle,
the binder answers `failed`, and the filter proposes half as many pods until one pod or group is
left. That one waits, up to 60 s, is named on `/readyz` and gets a `DecisionFailed` Event;
batches grow again with every cycle that completes.
"""
