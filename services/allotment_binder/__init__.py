"""The binder: decides, binds, and records how that ended.

Binding is one write. Node and device annotations travel in the Binding's metadata and land
atomically, so kubelet never sees the one without the other. A node's device plugin learns only how
many devices a container gets and picks the oldest pod with that number; so the binder sends no
second pod of the same family and number to a node before the first is acknowledged, runs, or is
gone (`services/allotment_binder/pacer.py`). The plugin looks at annotations alone, so what
a pod leaves behind is cleared away before the next Binding (`records.py`): the record of a pod that
ended before it was served is erased, and the place of one that was deleted while it waited its turn
stays empty until kubelet is past it. How far the plugin is with a pod is read off its work list,
not off the phase that the pod's owner can write. A pod of ours that runs while its own record
stands got another one's devices: `Corrected` books what it holds, once a pod. It counts only for a
pod that was not acknowledged before, and where the record that it was served with can only have
been written by an owner, nothing that was decided becomes free. Events, a metric, `allot doctor`
and `allot explain pod` show which pods wait for which (`explain/acknowledgement`). For old
plugins the binder can take Volcano's node lock around each Binding (`deviceshare.NodeLockEnable`);
it gives back what it took. Time stamps per node are strictly increasing and part of the decision. A
"Scheduled" Event costs the API server as much as a Binding, so Bindings go first and Events catch
up when there are none. Bindings are sent by a few workers (`sender.py`), not by a task each; one
that takes its time keeps its worker to itself, and another takes the worker's place.

A binder lives from getting the lease to losing it, or to reading that another one began. What it
still has under way then is refused by the log (`fence.py`).

Deciding needs no Kubernetes. `services/allotment_binder/decider.py` turns proposals into
decisions and knows no API server; binding is another loop. With `--no-bind` only the first
runs: what `allot bench pipeline` and `allot simulate --through services` measure.

A proposal counts as far as the state confirms it. It is a message, and anyone on the
bus can send one. The binder asks the placements' order, quota and gangs, the groups that are
admitted and what is held once more, with the same plugins on its own state
(`queues/round/objections.py`). What does not hold there, because it is forged or a fact has
overtaken it, is not repaired: the binder runs the round itself on its newest state and decides
that, so a late proposal costs one round and cannot be refused for ever. Evictions and
nominations are never taken from a message, since only a round finds the victims.
"""
