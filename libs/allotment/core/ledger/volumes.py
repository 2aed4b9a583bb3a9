"""Volumes that decisions gave to claims, which may not be bound to them yet."""

from collections.abc import Iterable, Mapping

from allotment.core.ledger.model import ClusterState
from allotment_proto.events import Placement

Pairs = tuple[tuple[str, str], ...]
"""Claims of a pod, by name, each with the volume that it gets."""


def taken(state: ClusterState, assumed: Iterable[Placement] = ()) -> dict[str, str]:
    """Volumes that were given to claims (``namespace/name``) which may not be bound to them yet."""
    found: dict[str, str] = {}
    for uid in state.local:
        pod = state.pods[uid]
        if pod.allocation is not None:
            _add(found, pod.fact.namespace, pod.allocation.volumes)
    for placement in assumed:
        _add(found, placement.namespace, placement.volumes)
    return found


def clashes(namespace: str, pairs: Pairs, given: Mapping[str, str]) -> bool:
    """Whether a volume was given to another claim, or a claim another volume."""
    volumes = {claim: volume for volume, claim in given.items()}
    return any(
        given.get(volume, f"{namespace}/{claim}") != f"{namespace}/{claim}"
        or volumes.get(f"{namespace}/{claim}", volume) != volume
        for claim, volume in pairs
    )


def _add(found: dict[str, str], namespace: str, pairs: Pairs) -> None:
    for claim, volume in pairs:
        found[volume] = f"{namespace}/{claim}"
