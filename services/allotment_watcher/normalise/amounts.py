"""What a pod takes of its host, apart from cards: CPU, memory, and counted resources."""

from collections.abc import Mapping, Sequence

from allotment.core import pod_totals, reasons, units
from allotment.core.placement.devices.base import ContainerSource, PodSource
from allotment_proto.facts import Problem
from allotment_watcher import objects
from allotment_watcher.normalise.lens import CPU, MEMORY, SCRATCH, Lens

ALWAYS = "Always"
"""The restart policy of an init container that keeps running."""
RECKONED = {CPU: "100m", MEMORY: "200Mi"}
AMOUNT_MAX = 1 << 50
"""Of bytes, of thousandths of a CPU, of anything: more than any node has. Sums over all pods of a
node stay far within 64 bits, on which the scheduling services reckon."""


class Invalid(Exception):
    """Raised while a pod is normalised, to leave it with its problem."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.message)
        self.problem = problem


def of_host(
    pod: objects.PodObject, source: PodSource, lens: Lens
) -> tuple[int, int, dict[str, int]]:
    """What the pod asks of the host (`pod_totals`): milli-CPUs, bytes of memory, and the resources
    that are counted. Raises `Invalid`.
    """
    containers = _of_containers(pod, source, lens)
    total = pod_totals.in_all(
        containers, _own(pod, containers, lens), _read(pod.spec.overhead, "spec.overhead", lens)
    )
    for name, value in total.items():
        try:
            bounded(value)
        except units.QuantityError as error:
            place = f"{name} of all containers"
            raise Invalid(Problem(reasons.INVALID_REQUEST, place, str(error))) from error
    cpu_milli, memory_bytes = total.pop(CPU, 0), total.pop(MEMORY, 0)
    return cpu_milli, memory_bytes, {n: v for n, v in total.items() if v and lens.is_counted(n)}


def unrequested(pod: objects.PodObject, source: PodSource, lens: Lens) -> tuple[int, int]:
    """Milli-CPUs and bytes that Kubernetes' scores reckon with beyond what is asked for: `RECKONED`
    for each container that requests none, unless the pod itself does.
    """

    def reckoned(containers: Sequence[ContainerSource]) -> list[ContainerSource]:
        return [c._replace(requests={**RECKONED, **c.limits, **c.requests}) for c in containers]

    guessed = source._replace(
        containers=reckoned(source.containers), init_containers=reckoned(source.init_containers)
    )
    containers = _of_containers(pod, source, lens)
    own, full = _own(pod, containers, lens), _of_containers(pod, guessed, lens)
    cpu_milli, memory_bytes = (
        0 if name in own else full.get(name, 0) - containers.get(name, 0) for name in (CPU, MEMORY)
    )
    return cpu_milli, memory_bytes


def _of_containers(pod: objects.PodObject, source: PodSource, lens: Lens) -> pod_totals.Amounts:
    stays = [spec.restart_policy == ALWAYS for spec in pod.spec.init_containers or ()]
    init = [_of_container(container, lens) for container in source.init_containers]
    return pod_totals.of_containers(
        [_of_container(container, lens) for container in source.containers],
        zip(init, stays, strict=True),
    )


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


def _of_container(container: ContainerSource, lens: Lens) -> dict[str, int]:
    """Requests, where a missing one is its limit (the API server fills it in likewise)."""
    merged = {**container.limits, **container.requests}
    place = f"container {container.name!r}"
    return {name: _amount(name, text, place, lens) for name, text in merged.items()}


def _amount(name: str, text: str, place: str, lens: Lens) -> int:
    try:
        if name == CPU:
            return units.milli(text)
        is_number = lens.is_counted(name) and name != SCRATCH
        return units.count(text) if is_number else units.whole_up(text)
    except units.QuantityError as error:
        raise Invalid(Problem(reasons.INVALID_REQUEST, f"{place}, {name}", str(error))) from error


def bounded(value: int) -> int:
    """The value. Raises QuantityError for one that no node has."""
    if value > AMOUNT_MAX:
        raise units.QuantityError(f"{value} is absurdly large (at most {AMOUNT_MAX})")
    return value


def texts(amounts: Mapping[str, objects.Amount] | None) -> dict[str, str]:
    """Amounts as text: YAML writers put numbers, too."""
    return {name: str(amount) for name, amount in (amounts or {}).items()}
