"""Existing volumes that wait for their first consumer: which pod gets which.

A claim of a class that creates no volumes (``kubernetes.io/no-provisioner``) is bound to an
existing volume, together with the choice of the node, because local disks can be reached from one
node only. A pod's facts have the volumes that each such claim can use. Its placement has those that
it gets, so that no other pod of the batch, or placed before, gets the same. The binder binds them.
Source: Kubernetes' `volumebinding`.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from allotment.core import reasons
from allotment.core.ledger.model import ClusterState, Node
from allotment.core.ledger.volumes import Pairs, clashes
from allotment.core.placement.rules.bounds import Bound, bounded, bounds_of
from allotment.core.placement.rules.selectors import affinity_matches
from allotment_proto.events import Placement, PodObserved
from allotment_proto.facts import Expression, LocalVolume, NodeTerm, PodRequest

_NO_NODE = NodeTerm(())
"""A term without expressions matches nothing."""


def within(
    request: PodRequest, pod: PodObserved, state: ClusterState, given: Mapping[str, str]
) -> PodRequest:
    """The request, limited to nodes from which the pod can reach a volume of its own for each
    claim.
    """
    if not pod.local_claims:
        return request
    names = tuple(sorted(_reaching(pod, state, given)))
    there = NodeTerm((), (Expression("metadata.name", "In", names),))
    claims = ", ".join(wanted.claim for wanted in pod.local_claims)
    text = f"no volume that is free and large enough for claim {claims} can be reached from others"
    bound = Bound(reasons.VOLUME_OUT_OF_REACH, (there if names else _NO_NODE,), text)
    bounds = bounds_of(request)
    return bounded(request, bounds._replace(always=(*bounds.always, bound)))


def _reaching(pod: PodObserved, state: ClusterState, given: Mapping[str, str]) -> Iterator[str]:
    """The nodes on which `choice` finds a volume for each claim.

    Nodes are looked up by what the volumes' terms name, once for all volumes with the same terms.
    Checking every volume on every node costs a pod 0.15 s with 1,000 nodes and 256 volumes.
    """
    lookup = _NodeLookup(state.nodes)
    there: dict[str, list[list[str]]] = {}
    for number, volumes in enumerate(_free_for(pod, given)):
        for volume in volumes:
            for node in lookup.matching(volume.terms):
                found = there.setdefault(node, [])
                if len(found) == number:  # found for each claim before, not yet for this one
                    found.append([])
                if len(found) == number + 1:
                    found[number].append(volume.name)
    for node, found in there.items():
        if len(found) == len(pod.local_claims) and _apart(found) is not None:
            yield node


class _NodeLookup:
    """The nodes that match terms. It caches its answers, so create a new one for each use of a
    state.
    """

    def __init__(self, nodes: Mapping[str, Node]) -> None:
        self._nodes = nodes
        self._by_label: dict[str, dict[str, list[Node]]] = {}
        self._matching: dict[tuple[NodeTerm, ...], tuple[str, ...]] = {}

    def matching(self, terms: tuple[NodeTerm, ...]) -> tuple[str, ...]:
        """The names of the nodes that match one of the terms; of all nodes if there are none."""
        found = self._matching.get(terms)
        if found is None:
            found = self._matching[terms] = tuple(
                node.name
                for node in self._candidates(terms)
                if affinity_matches(terms, node.labels, node.name)
            )
        return found

    def _candidates(self, terms: tuple[NodeTerm, ...]) -> Iterable[Node]:
        """At least the nodes that match; only those with a label that each term names, if each
        names one.

        A term of a local volume nearly always names its node by one label.
        """
        found: dict[str, Node] = {}
        for term in terms:
            named = next((e for e in term.labels if e.operator == "In"), None)
            if named is None:
                return self._nodes.values()
            by_value = self._having(named.key)
            found.update(
                (node.name, node) for value in named.values for node in by_value.get(value, ())
            )
        return found.values() if terms else self._nodes.values()

    def _having(self, key: str) -> dict[str, list[Node]]:
        """The nodes that have a label, by its value."""
        by_value = self._by_label.get(key)
        if by_value is None:
            by_value = self._by_label[key] = {}
            for node in self._nodes.values():
                if key in node.labels:
                    by_value.setdefault(node.labels[key], []).append(node)
        return by_value


def _free_for(pod: PodObserved, given: Mapping[str, str]) -> list[list[LocalVolume]]:
    """For each claim of a pod, the volumes that it can still use, on any node."""
    has = {claim: volume for volume, claim in given.items()}
    free = []
    for wanted in pod.local_claims:
        key = f"{pod.namespace}/{wanted.claim}"
        free.append(
            [
                volume
                for volume in wanted.volumes
                if given.get(volume.name, key) == key and has.get(key, volume.name) == volume.name
            ]
        )
    return free


def choice(
    pod: PodObserved, labels: Mapping[str, str], node: str, given: Mapping[str, str]
) -> Pairs | None:
    """A volume of its own for each of the pod's claims on a node, the better ones first; None if
    some claim has none.
    """
    there = []
    for volumes in _free_for(pod, given):
        names = [volume.name for volume in volumes if affinity_matches(volume.terms, labels, node)]
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
    """Whether the volumes of a placement are still those that its pod can use there."""
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
    """For each list one of its names, no name twice; None if that is impossible.

    A list gets the first of its names that is left. If none is, the lists that have them try other
    names, and so on (augmenting paths). Trying all combinations would take too long where a dozen
    claims compete for eleven volumes.
    """
    holder: dict[str, int] = {}
    got: dict[int, str] = {}
    for new in range(len(wanted)):
        asked_by: dict[str, int] = {}
        asking, free = [new], ""
        for number in asking:  # grows during the loop
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
        while True:  # pass each list's name on, back to the new list
            number = asked_by[free]
            before = got.get(number, "")
            holder[free], got[number] = number, free
            if number == new:
                break
            free = before
    return [got[number] for number in range(len(wanted))]
