"""The rules of placement in plain Python: what a node must have, and what it is worth.

The rules of other pods are one question for each topology key. Affinity and spread rules count the
pods of all nodes, and rules of one tenant's pods concern the pods of others. So all rules about a
pod together are evaluated once for each topology key (`interpod.py`), however many there are, and
counts that are no longer used are dropped. A pod may have 32 rules about other pods and 128 terms
of node affinity; one with more is rejected.

Volumes are counted where they are attached. A node's fact has the number of volumes per driver that
it can attach (`NodeObserved.volume_limits`, from its CSINode). A pod's request has those that it
needs (`attachments`), only for drivers that some node has a limit for, so clusters without limits
log none. A node has attached the volumes of the pods booked on it, each claim once. Claims of one
pod only are requested by number (`core/placement/rules/attachments.py: merged`), so that pods of
one shape share their row on the board.

A list of models applies to cards that are only counted, too. Kubelet chooses which of a node's
`nvidia.com/gpu` a pod gets, so such a node matches as a whole or not at all, by its product label
(`core/placement/rules/counted_cards.py`, checked with the pod's other constraints on nodes).
`Selection.counted` names the resources that the lists apply to.
"""
