"""What a pod takes of its host in all: one rule for the watcher, for `minResources`, for kubelets.

The larger of what its containers take together and what its init containers take in turn; what
the pod says itself (``spec.resources``) in place of that, and its overhead on top.
Source: Kubernetes `component-helpers/resource` and the API server's defaults for pods.
"""

from collections.abc import Iterable, Mapping

Amounts = Mapping[str, int]

_OVERCOMMITTED = frozenset(("cpu", "memory"))
"""What containers may take more of than they request."""


def of_containers(containers: Iterable[Amounts], init: Iterable[tuple[Amounts, bool]]) -> Amounts:
    """The peak over a pod's life. Of an init container is said whether it keeps running: such a
    sidecar adds to everything that comes after it.
    """
    running: dict[str, int] = {}
    peak: dict[str, int] = {}
    for amounts, is_sidecar in init:
        for name, amount in amounts.items():
            peak[name] = max(peak.get(name, 0), running.get(name, 0) + amount)
            if is_sidecar:
                running[name] = running.get(name, 0) + amount
    for amounts in containers:
        for name, amount in amounts.items():
            running[name] = running.get(name, 0) + amount
    return {name: max(running.get(name, 0), peak.get(name, 0)) for name in {**running, **peak}}


def is_pod_level(name: str) -> bool:
    """Whether a pod can request the resource itself, apart from its containers."""
    return name in _OVERCOMMITTED or name.startswith("hugepages-")


def own_requests(requests: Amounts, limits: Amounts, containers: Amounts) -> dict[str, int]:
    """What the pod requests itself, missing requests filled in as the API server does: from what
    the containers request (`of_containers`) where that may be exceeded, else from the pod's limits.
    """
    own = {name: amount for name, amount in requests.items() if is_pod_level(name)}
    for name, amount in limits.items():
        if is_pod_level(name):
            from_containers = containers.get(name) if name in _OVERCOMMITTED else None
            own.setdefault(name, amount if from_containers is None else from_containers)
    return own


def in_all(containers: Amounts, own: Amounts, overhead: Amounts) -> dict[str, int]:
    """What the pod takes: what it says itself goes before what its containers say."""
    total = {**containers, **{name: own[name] for name in own if is_pod_level(name)}}
    for name, amount in overhead.items():
        total[name] = total.get(name, 0) + amount
    return total
