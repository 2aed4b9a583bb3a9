"""What a pod takes of its host, beside cards: CPU, memory, and resources that are only counted."""

from collections.abc import Mapping, Sequence

from allotment.core import quantities, reasons
from allotment.core.devices.base import ContainerSource, PodSource
from allotment_proto.facts import Problem
from allotment_watcher import objects
from allotment_watcher.normalise.lens import CPU, MEMORY, Lens

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
    """What the pod asks of the host: the larger of its containers' sum and its init containers.

    Milli-CPUs, bytes of memory, and the resources that are counted. Raises `Invalid`. Source:
    Kubernetes `PodRequests`: restartable init containers (sidecars) keep running, so they add to
    what comes after them.
    """
    running: dict[str, int] = {}
    peak: dict[str, int] = {}
    init = pod.spec.init_containers or ()
    for spec, container in zip(init, source.init_containers, strict=True):
        amounts = _of_container(container, lens)
        for name, amount in amounts.items():
            peak[name] = max(peak.get(name, 0), running.get(name, 0) + amount)
        if spec.restart_policy == "Always":
            for name, amount in amounts.items():
                running[name] = running.get(name, 0) + amount
    for container in source.containers:
        for name, amount in _of_container(container, lens).items():
            running[name] = running.get(name, 0) + amount
    total = {name: max(running.get(name, 0), peak.get(name, 0)) for name in {**running, **peak}}
    for name, text in texts(pod.spec.overhead).items():
        total[name] = total.get(name, 0) + _amount(name, text, "spec.overhead", lens)
    for name, value in total.items():
        try:
            bounded(value)
        except quantities.QuantityError as error:
            place = f"{name} of all containers"
            raise Invalid(Problem(reasons.INVALID_REQUEST, place, str(error))) from error
    cpu_milli, memory_bytes = total.pop(CPU, 0), total.pop(MEMORY, 0)
    return cpu_milli, memory_bytes, {n: v for n, v in total.items() if v and lens.is_counted(n)}


def unsaid(pod: objects.PodObject, source: PodSource, lens: Lens) -> tuple[int, int]:
    """Milli-CPUs and bytes that Kubernetes' scores reckon with beyond what is asked for: `RECKONED`
    for each container that requests none.
    """

    def reckoned(containers: Sequence[ContainerSource]) -> list[ContainerSource]:
        return [c._replace(requests={**RECKONED, **c.limits, **c.requests}) for c in containers]

    guessed = source._replace(
        containers=reckoned(source.containers), init_containers=reckoned(source.init_containers)
    )
    said, full = of_host(pod, source, lens), of_host(pod, guessed, lens)
    return full[0] - said[0], full[1] - said[1]


def _of_container(container: ContainerSource, lens: Lens) -> dict[str, int]:
    """Requests, where a missing one is its limit (the API server fills it in likewise)."""
    merged = {**container.limits, **container.requests}
    place = f"container {container.name!r}"
    return {name: _amount(name, text, place, lens) for name, text in merged.items()}


def _amount(name: str, text: str, place: str, lens: Lens) -> int:
    try:
        if name == CPU:
            return quantities.milli(text)
        return quantities.count(text) if lens.is_counted(name) else quantities.whole_up(text)
    except quantities.QuantityError as error:
        raise Invalid(Problem(reasons.INVALID_REQUEST, f"{place}, {name}", str(error))) from error


def bounded(value: int) -> int:
    """The value. Raises QuantityError for one that no node has."""
    if value > AMOUNT_MAX:
        raise quantities.QuantityError(f"{value} is absurdly large (at most {AMOUNT_MAX})")
    return value


def texts(amounts: Mapping[str, objects.Amount] | None) -> dict[str, str]:
    """Amounts as text: YAML writers put numbers, too."""
    return {name: str(amount) for name, amount in (amounts or {}).items()}
