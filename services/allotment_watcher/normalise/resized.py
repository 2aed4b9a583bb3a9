"""A pod that is resized in place, as its node has to count it until the kubelet is done.

A spec says what is wanted. What the kubelet has set aside, and what the containers run with, stands
in the status. A pod that shrinks holds the old amount until then, one that grows may get the new
one at any moment. So each amount counts as the largest of the three. What the kubelet will never
grant (*infeasible*) does not count: else a user who may resize a pod could claim its whole node.
Source: Kubernetes `component-helpers/resource`, with `UseStatusResources`.
"""

from collections.abc import Callable, Mapping

import msgspec

from allotment.core import units
from allotment_watcher import objects

_NOTHING = objects.Resources()
_PENDING, _INFEASIBLE = "PodResizePending", "Infeasible"


def held(pod: objects.PodObject) -> objects.PodObject:
    """The pod, asking for the most that its node may hold for it; a pod without a node as it is."""
    status = pod.status
    if status is None or not pod.spec.node_name or not _says_amounts(status):
        return pod
    most = _granted if _is_infeasible(status) else _most
    spec = msgspec.structs.replace(
        pod.spec,
        containers=_containers(pod.spec.containers, status.container_statuses, most),
        init_containers=_containers(pod.spec.init_containers, status.init_container_statuses, most),
        resources=most(pod.spec.resources, status.allocated_resources, status.resources),
    )
    return msgspec.structs.replace(pod, spec=spec)


def _is_infeasible(status: objects.PodStatus) -> bool:
    return any(
        each.type == _PENDING and each.status == "True" and each.reason == _INFEASIBLE
        for each in status.conditions or ()
    )


def _says_amounts(status: objects.PodStatus) -> bool:
    statuses = (*(status.container_statuses or ()), *(status.init_container_statuses or ()))
    return any(each.resources or each.allocated_resources for each in (status, *statuses))


def _containers(
    containers: list[objects.Container] | None,
    statuses: list[objects.ContainerStatus] | None,
    most: Callable[
        [objects.Resources | None, objects.Amounts, objects.Resources | None],
        objects.Resources | None,
    ],
) -> list[objects.Container] | None:
    by_name = {status.name: status for status in statuses or ()}
    return containers and [
        container
        if (status := by_name.get(container.name)) is None
        else msgspec.structs.replace(
            container,
            resources=most(container.resources, status.allocated_resources, status.resources),
        )
        for container in containers
    ]


def _granted(
    wanted: objects.Resources | None,
    allocated: objects.Amounts,
    actual: objects.Resources | None,
) -> objects.Resources | None:
    """As `_most`, without what is wanted where the status has an amount."""
    wanted = wanted or _NOTHING
    limits = {**(wanted.limits or {}), **((actual and actual.limits) or {})}
    requests = {**limits, **(wanted.requests or {}), **(allocated or {})}
    return _most(objects.Resources(limits, requests), allocated, actual)


def _most(
    wanted: objects.Resources | None,
    allocated: objects.Amounts,
    actual: objects.Resources | None,
) -> objects.Resources | None:
    wanted, actual = wanted or _NOTHING, actual or _NOTHING
    limits, requests = wanted.limits or {}, wanted.requests or {}
    kept = {name: amount for name, amount in (allocated or {}).items() if name in limits}
    # A request that the spec leaves out is its limit, as the API server fills it in.
    return objects.Resources(
        _largest(limits, actual.limits or {}, kept),
        _largest({**limits, **requests}, actual.requests or {}, allocated or {}),
    )


def _largest(
    wanted: Mapping[str, objects.Amount], *held: Mapping[str, objects.Amount]
) -> dict[str, objects.Amount]:
    """The largest amount by resource, as spelt there; what is held counts if it can be read."""
    most = dict(wanted)
    for amounts in held:
        for name, amount in amounts.items():
            if _is_larger(amount, most.get(name, 0)):
                most[name] = amount
    return most


def _is_larger(amount: objects.Amount, than: objects.Amount) -> bool:
    try:
        (above, below), (above_than, below_than) = units.parse(str(amount)), units.parse(str(than))
    except units.QuantityError:
        return False
    return above * below_than > above_than * below
