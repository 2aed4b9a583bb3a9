"""Volumes that are there already and wait for their first consumer: which pod gets which.

A claim of a class that makes no volumes (``kubernetes.io/no-provisioner``) is bound to a volume
that is there, together with the choice of the node: local disks can be reached from one node only.
The facts about a pod say which volumes each such claim can have. Its placement says which it gets,
so that no other pod of the batch, or placed before, gets the same. The binder binds them.
Source: Kubernetes' `volumebinding`.
"""

from collections.abc import Mapping, Sequence

from allotment.core import reasons
from allotment.core.ledger.model import ClusterState
from allotment.core.ledger.volumes import Pairs, clashes
from allotment.core.placement.rules.bounds import Bound, bounded, bounds_of
from allotment.core.placement.rules.selectors import affinity_matches
from allotment_proto.events import Placement, PodObserved
from allotment_proto.facts import Expression, NodeTerm, PodRequest

NO_NODE = NodeTerm(())
"""A term without expressions matches nothing."""


def within(
    request: PodRequest, pod: PodObserved, state: ClusterState, given: Mapping[str, str]
) -> PodRequest:
    """The request, for nodes from which the pod can reach a volume of its own for each claim."""
    if not pod.local_claims:
        return request
    names = tuple(
        sorted(
            node.name
            for node in state.nodes.values()
            if choice(pod, node.labels, node.name, given) is not None
        )
    )
    there = NodeTerm((), (Expression("metadata.name", "In", names),))
    claims = ", ".join(wanted.claim for wanted in pod.local_claims)
    text = f"no volume that is free and large enough for claim {claims} can be reached from others"
    bound = Bound(reasons.VOLUME_OUT_OF_REACH, (there if names else NO_NODE,), text)
    bounds = bounds_of(request)
    return bounded(request, bounds._replace(always=(*bounds.always, bound)))


def choice(
    pod: PodObserved, labels: Mapping[str, str], node: str, given: Mapping[str, str]
) -> Pairs | None:
    """A volume of its own for each of the pod's claims on a node, the better ones first; None if
    there is none for some claim.
    """
    has = {claim: volume for volume, claim in given.items()}
    there = []
    for wanted in pod.local_claims:
        key = f"{pod.namespace}/{wanted.claim}"
        names = [
            volume.name
            for volume in wanted.volumes
            if given.get(volume.name, key) == key
            and has.get(key, volume.name) == volume.name
            and affinity_matches(volume.terms, labels, node)
        ]
        if not names:
            return None
        there.append(names)
    chosen = _apart(there)
    if chosen is None:
        return None
    claims = [wanted.claim for wanted in pod.local_claims]
    return tuple(zip(claims, chosen, strict=True))


def stands(
    pod: PodObserved, placement: Placement, labels: Mapping[str, str], given: Mapping[str, str]
) -> bool:
    """Whether the volumes of a placement are still those that its pod can have there."""
    chosen = dict(placement.volumes)
    if {wanted.claim for wanted in pod.local_claims} != chosen.keys():
        return False
    if not len(placement.volumes) == len(chosen) == len(set(chosen.values())):
        return False
    return not clashes(pod.namespace, placement.volumes, given) and all(
        any(
            volume.name == chosen[wanted.claim]
            and affinity_matches(volume.terms, labels, placement.node)
            for volume in wanted.volumes
        )
        for wanted in pod.local_claims
    )


def _apart(wanted: Sequence[Sequence[str]]) -> list[str] | None:
    """For each list one of its names, no name twice; None if that cannot be.

    A list gets the first of its names that is left. If none is, the lists that have them are asked
    to do with another one, and so on (augmenting paths): trying all combinations in turn would take
    for ever where a dozen claims compete for eleven volumes.
    """
    holder: dict[str, int] = {}
    got: dict[int, str] = {}
    for new in range(len(wanted)):
        asked_by: dict[str, int] = {}
        asking, free = [new], ""
        for number in asking:  # grows as it is walked
            for name in wanted[number]:
                if name in asked_by:
                    continue
                asked_by[name] = number
                if name not in holder:
                    free = name
                    break
                asking.append(holder[name])
            if free:
                break
        if not free:
            return None
        while True:  # hand on what each had, back to the new one
            number = asked_by[free]
            before = got.get(number, "")
            holder[free], got[number] = number, free
            if number == new:
                break
            free = before
    return [got[number] for number in range(len(wanted))]
