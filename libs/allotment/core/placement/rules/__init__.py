"""The rules of placement in plain Python: what a node must have, and what it is worth.

Others' rules are one question for each topology key. Affinity and spread rules are counted over
the pods of all nodes, and rules of one tenant's pods concern the pods of others. So what all
rules together say of a pod is asked once for each topology key (`interpod.py`), however many
rules there are, and counts that nobody asks for any more are forgotten. A pod may have 32 rules
about other pods and 128 terms of node affinity; one with more is refused.

Volumes are counted where they are attached. How many volumes of a driver a node can have
attached is in its fact (`NodeObserved.volume_limits`, from its CSINode), which of them a pod
needs in its request (`attachments`), and only for drivers that some node has a limit for:
clusters without limits log nothing of it. A node has attached what the pods booked on it have,
each claim once. Claims of one pod only are asked for by number
(`core/placement/rules/attachments.py: merged`), so that pods of one shape share their row on
the board.

A list of models holds for cards that are only counted, too. Which of a node's `nvidia.com/gpu`
a pod gets kubelet decides, so such a node is right as a whole or not at all: its product label
says (`core/placement/rules/counted_cards.py`, asked with the pod's other constraints on nodes).
`Selection.counted` names the resources that the lists are about.
"""
