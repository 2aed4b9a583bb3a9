"""The watcher: Kubernetes objects become facts of the log.

Facts that gather travel together. A synced append costs a disk flush, so one message per fact would
cap the whole system at some thousand facts a second. A fact alone goes to its object's subject;
facts that queued up behind an append share one record on `allot.log.facts`. The order is the same
either way. No service waits for the facts that a pod was bound as the log says, and that it runs:
they go with the next fact that one waits for, at the latest after 50 ms, and often the pod's next
state has taken their place by then. Of several versions of an object that a watch brings at once
only the last is read.

No owner fills the log with one pod. A label or an annotation costs its owner one request, and the
log a record that stays. So a pod has 20 such changes free and then one every 10 s
(`allotment_watcher/throttle.py`): the last state is recorded, only later. What kubelet and the API
server bring about (node, phase, deletion) is recorded at once. The part of a pod's spec that says
where it may run may take 32 KiB.

Configuration of devices is an event. `DevicesConfigured` has the parsed ConfigMaps. What
follows from them (sizes, tables, requests) is in the facts, which the watcher writes again when
the configuration changes; so replay needs no ConfigMap, and an old decision is judged by what
was known then. A text of either configuration that is refused, or has lines without effect, is
an event as well (`ConfigurationChecked`): it changes nothing but what `allot doctor` says of
that moment. The scheduler configuration comes from Volcano's ConfigMap while that exists, else
from the policy file (`allotment_watcher/policy_source.py`). Where configuration, registration
and what kubelet lists do not agree, the node says so (`DeviceConfigMismatch`) before a pod is
sent there.
"""
