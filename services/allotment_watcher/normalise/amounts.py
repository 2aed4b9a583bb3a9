"""What a pod takes of its host, apart from cards: CPU, memory, and counted resources."""

from collections.abc import Mapping
from typing import NamedTuple

from allotment.core import pod_totals, reasons, units
from allotment.core.placement.devices.base import ContainerSource, PodSource
from allotment_proto.facts import Problem
from allotment_watcher import objects
from allotment_watcher.normalise.lens import CPU, MEMORY, SCRATCH, Lens

_ALWAYS = "Always"
"""The restart policy of an init container that keeps running."""
_RECKONED = {CPU: "100m", MEMORY: "200Mi"}
AMOUNT_MAX = 1 << 50
"""Of bytes, of thousandths of a CPU, of anything: more than any node has. Sums over all pods of a
node stay far within 64 bits, on which the scheduling services reckon."""


class Invalid(Exception):
    """Raised while a pod is normalised, to leave it with its problem."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.message)
        self.problem = problem


def invalid(place: str, message: str) -> Invalid:
    """The same for a request that is wrong in one place."""
    return Invalid(Problem(reasons.INVALID_REQUEST, place, message))


class Host(NamedTuple):
    """What a pod asks of its host, apart from cards: milli-CPUs, bytes, counted resources; and the
    milli-CPUs and bytes with which Kubernetes' scores reckon beyond that: `_RECKONED` for each
    container that requests none, unless the pod itself does.
    """

    cpu_milli: int
    memory_bytes: int
    extended: dict[str, int]
    unrequested: tuple[int, int]


def of_host(pod: objects.PodObject, source: PodSource, lens: Lens) -> Host:
    """What the pod asks of the host (`pod_totals`). Raises `Invalid`."""
    containers = _of_containers(pod, source, lens, {})
    own = _own(pod, containers, lens)
    total = pod_totals.in_all(containers, own, _read(pod.spec.overhead, "spec.overhead", lens))
    for name, value in total.items():
        try:
            bounded(value)
        except units.QuantityError as error:
            raise invalid(f"{name} of all containers", str(error)) from error
    full = _of_containers(pod, source, lens, _RECKONED)
    more_milli, more_bytes = (
        0 if name in own else full.get(name, 0) - containers.get(name, 0) for name in (CPU, MEMORY)
    )
    extended = {n: v for n, v in total.items() if v and lens.is_counted(n)}
    return Host(total.get(CPU, 0), total.get(MEMORY, 0), extended, (more_milli, more_bytes))


def _of_containers(
    pod: objects.PodObject, source: PodSource, lens: Lens, otherwise: Mapping[str, str]
) -> pod_totals.Amounts:
    """Requests, where a missing one is its limit (the API server fills it in likewise), and without
    a limit what is `otherwise`.
    """

    def amounts(container: ContainerSource) -> dict[str, int]:
        merged = {**otherwise, **container.limits, **container.requests}
        place = f"container {container.name!r}"
        return {name: _amount(name, text, place, lens) for name, text in merged.items()}

    stays = [spec.restart_policy == _ALWAYS for spec in pod.spec.init_containers or ()]
    init = list(map(amounts, source.init_containers))
    return pod_totals.of_containers(map(amounts, source.containers), zip(init, stays, strict=True))


def _own(pod: objects.PodObject, containers: pod_totals.Amounts, lens: Lens) -> dict[str, int]:
    """What the pod itself requests, in addition to its containers."""
    resources = pod.spec.resources
    if resources is None:
        return {}
    requests = _read(resources.requests, "spec.resources.requests", lens)
    limits = _read(resources.limits, "spec.resources.limits", lens)
    return pod_totals.own_requests(requests, limits, containers)


def _read(amounts: Mapping[str, objects.Amount] | None, place: str, lens: Lens) -> dict[str, int]:
    return {name: _amount(name, text, place, lens) for name, text in texts(amounts).items()}


def _amount(name: str, text: str, place: str, lens: Lens) -> int:
    try:
        if name == CPU:
            return units.milli(text)
        is_number = lens.is_counted(name) and name != SCRATCH
        return units.count(text) if is_number else units.whole_up(text)
    except units.QuantityError as error:
        raise invalid(f"{place}, {name}", str(error)) from error


def bounded(value: int) -> int:
    """The value. Raises QuantityError for one that no node has."""
    if value > AMOUNT_MAX:
        raise units.QuantityError(f"{value} is absurdly large (at most {AMOUNT_MAX})")
    return value


def texts(amounts: Mapping[str, objects.Amount] | None) -> dict[str, str]:
    """Amounts as text: YAML writers put numbers, too."""
    return {name: str(amount) for name, amount in (amounts or {}).items()}
