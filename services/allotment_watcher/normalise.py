"""Kubernetes objects → facts: what decides about scheduling, in our units, and nothing else.

Two observations with equal facts differ only in noise (heartbeats, conditions, managed fields), and
noise never reaches the log. A pod whose request cannot be granted as written becomes a fact with a
problem: it is refused with that text, and no other pod suffers.

A pod is seen several times in its life, and pods come in hundreds of a kind. What each kind asks
for is worked out once.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from functools import lru_cache

import msgspec

from allotment.core import quantities, reasons
from allotment.core.devices import FAMILIES
from allotment.core.devices.base import ContainerSource, NodeSource, PodSource
from allotment_proto.events import NodeObserved, PodObserved
from allotment_proto.facts import (
    Constraints,
    DeviceRequest,
    Expression,
    Holding,
    NodeTerm,
    PodRequest,
    Policy,
    Problem,
    Selection,
    Taint,
    Toleration,
)
from allotment_proto.volcano import gpushare, keys, selection
from allotment_watcher import objects

CPU = "cpu"
MEMORY = "memory"
PODS = "pods"
REQUEST_BYTES_MAX = 128 * 1024
"""One pod's huge affinity must never fill a record of the log, which would hold up all others."""
AMOUNT_MAX = 1 << 50
"""Of bytes, of thousandths of a CPU, of anything: more than any node has. Sums over all pods of a
node stay far within 64 bits, on which the scheduling services reckon."""
VERSION_DIGITS_MAX = 18
NOT_COUNTED = frozenset((CPU, MEMORY, PODS, "ephemeral-storage"))
KINDS_REMEMBERED = 512
ASKED = frozenset(
    (
        keys.GPU_INDEX,
        keys.VGPU_MODE,
        keys.USE_GPUTYPE,
        keys.NOUSE_GPUTYPE,
        keys.USE_GPUUUID,
        keys.NOUSE_GPUUUID,
    )
)
"""Annotations that tell what a pod asks for. Others differ from pod to pod of a kind."""
_DEVICES = frozenset().union(*(family.resources for family in FAMILIES.values()))
_UNADVERTISED = frozenset().union(*(family.unadvertised for family in FAMILIES.values()))


class _Invalid(Exception):
    """Raised inside this module to leave a pod's normalisation with its problem."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.message)
        self.problem = problem


def pod_fact(pod: objects.PodObject, policy: Policy) -> PodObserved:
    """A pod as the log tells it. Never raises: what is wrong becomes the fact's problem."""
    meta, spec = pod.metadata, pod.spec
    problem: Problem | None = None
    try:
        request = _request_of_kind(_kind(pod), policy.multi_container)
    except _Invalid as error:
        request, problem = PodRequest(), error.problem
        if spec.node_name:
            request = _running_request(pod, _pod_source(pod))
    node = spec.node_name or ""
    annotations = meta.annotations or {}
    return PodObserved(
        uid=meta.uid,
        namespace=meta.namespace,
        name=meta.name,
        rv=_version(meta.resource_version),
        created_ms=_time_ms(meta.creation_timestamp),
        scheduler=spec.scheduler_name or "default-scheduler",
        request=request,
        priority=spec.priority or 0,
        gated=bool(spec.scheduling_gates),
        deleting=meta.deletion_timestamp is not None,
        phase=(pod.status.phase if pod.status else None) or "Pending",
        node=node,
        holdings=_holdings(_pod_source(pod)) if node else (),
        bind_phase=_bind_phase(annotations) if node else "",
        group=_group(meta.namespace, annotations),
        problem=problem,
    )


def depends_on_policy(pod: objects.PodObject) -> bool:
    """Whether another policy could make another fact of this pod: see `_check_containers`."""
    containers = pod.spec.containers or ()
    if len(containers) < 2:
        return False
    return sum(_asks_for_devices(c) for c in containers) > 1


def _asks_for_devices(container: objects.Container) -> bool:
    limits = container.resources.limits if container.resources else None
    return limits is not None and not _DEVICES.isdisjoint(limits)


def unreadable_pod_fact(
    namespace: str, name: str, uid: str, scheduler: str, node: str, error: str
) -> PodObserved:
    """The fact about a pod that exists but does not fit the API's types.

    Without a version, so that it never displaces what was read of the pod before: its cards must
    not count as free because an annotation broke.
    """
    return PodObserved(
        uid=uid,
        namespace=namespace,
        name=name,
        rv=0,
        created_ms=0,
        scheduler=scheduler,
        request=PodRequest(),
        node=node,
        problem=Problem(reasons.INVALID_REQUEST, "the pod object", f"cannot be read: {error}"),
    )


def node_fact(node: objects.NodeObject) -> NodeObserved:
    """A node as the log tells it. Broken amounts count as 0 and are listed as problems."""
    meta = node.metadata
    status = node.status or objects.NodeStatus()
    spec = node.spec or objects.NodeSpec()
    problems: list[Problem] = []
    allocatable = _texts(status.allocatable)
    source = NodeSource(meta.annotations or {}, _texts(status.capacity), allocatable)
    inventories = []
    for family in FAMILIES.values():
        inventory, found = family.inventory(source)
        problems.extend(found)
        if inventory is not None:
            inventories.append(inventory)

    def amount(name: str, text: str) -> int:
        try:
            value = quantities.milli(text) if name == CPU else quantities.whole_up(text)
            return _bounded(value)
        except quantities.QuantityError as error:
            problems.append(Problem("BrokenQuantity", f"status.allocatable {name}", str(error)))
            return 0

    amounts = {name: amount(name, text) for name, text in sorted(allocatable.items())}
    conditions = {c.type: c.status for c in status.conditions or ()}
    return NodeObserved(
        name=meta.name,
        uid=meta.uid,
        rv=_version(meta.resource_version),
        labels=tuple(sorted((meta.labels or {}).items())),
        taints=tuple(sorted(_taints(spec.taints or ()), key=lambda t: (t.key, t.effect, t.value))),
        unschedulable=bool(spec.unschedulable),
        ready=conditions.get("Ready", "True") == "True",
        cpu_milli=amounts.get(CPU, 0),
        memory_bytes=amounts.get(MEMORY, 0),
        pods=amounts.get(PODS, 0),
        extended=tuple((n, v) for n, v in amounts.items() if n not in NOT_COUNTED),
        inventories=tuple(inventories),
        problems=tuple(problems),
    )


class _Kind(msgspec.Struct):
    """What a pod's request depends on, and nothing that differs between pods of a kind."""

    spec: objects.PodSpec
    annotations: dict[str, str]


def _kind(pod: objects.PodObject) -> bytes:
    # Bound or not makes a difference, where does not.
    spec = msgspec.structs.replace(pod.spec, node_name="bound" if pod.spec.node_name else None)
    annotations = pod.metadata.annotations or {}
    asked = {name: annotations[name] for name in ASKED & annotations.keys()}
    return msgspec.json.encode(_Kind(spec, asked))


_decode_kind = msgspec.json.Decoder(_Kind).decode


@lru_cache(maxsize=KINDS_REMEMBERED)
def _request_of_kind(kind: bytes, multi_container: bool) -> PodRequest:
    """The request of every pod of a kind. Raises _Invalid."""
    found = _decode_kind(kind)
    pod = objects.PodObject(objects.Meta(annotations=found.annotations), found.spec)
    return _request(pod, _pod_source(pod), multi_container=multi_container)


def _request(pod: objects.PodObject, source: PodSource, *, multi_container: bool) -> PodRequest:
    if pod.spec.resource_claims and not pod.spec.node_name:
        raise _Invalid(
            Problem(
                reasons.INVALID_REQUEST,
                "spec.resourceClaims",
                "dynamic resource allocation is not supported; leave the pod to a scheduler that "
                "allocates claims (schedulerName: default-scheduler)",
            )
        )
    devices: list[DeviceRequest] = []
    for family in FAMILIES.values():
        wanted, problem = family.requests(source)
        if problem is not None:
            raise _Invalid(problem)
        devices.extend(wanted)
    _check_containers(source, devices, multi_container=multi_container)
    chosen = Selection()
    if devices:
        chosen, problems = selection.decode(source.annotations)
        if problems and not pod.spec.node_name:
            raise _Invalid(problems[0])
        if pod.spec.node_name and devices[0].family == gpushare.FAMILY:
            # Bound, the index says what the pod got: it is no longer what the pod asked for.
            chosen = msgspec.structs.replace(chosen, indexes=None)
    cpu_milli, memory_bytes, extended = _amounts(pod, source)
    request = PodRequest(
        cpu_milli=cpu_milli,
        memory_bytes=memory_bytes,
        extended=tuple(sorted(extended.items())),
        devices=tuple(devices),
        selection=chosen,
        constraints=_constraints(pod.spec),
    )
    size_bytes = len(msgspec.json.encode(request))
    if size_bytes > REQUEST_BYTES_MAX:
        raise _Invalid(
            Problem(
                reasons.INVALID_REQUEST,
                "the pod's constraints",
                f"take {size_bytes} bytes; at most {REQUEST_BYTES_MAX}",
            )
        )
    return request


def _running_request(pod: objects.PodObject, source: PodSource) -> PodRequest:
    """What a pod that runs although we would refuse it takes of its host, as far as it says so."""
    try:
        cpu_milli, memory_bytes, extended = _amounts(pod, source)
    except _Invalid:
        return PodRequest()
    return PodRequest(cpu_milli, memory_bytes, tuple(sorted(extended.items())))


def _check_containers(
    source: PodSource, devices: list[DeviceRequest], *, multi_container: bool
) -> None:
    families = sorted({request.family for request in devices})
    if len(families) > 1:
        raise _Invalid(
            Problem(
                reasons.INVALID_REQUEST,
                "resources.limits",
                f"asks for devices of several kinds at once ({', '.join(families)}); "
                "a pod can have one kind",
            )
        )
    if not families or multi_container:
        return
    names = FAMILIES[families[0]].resources
    asking = [
        container.name
        for container in source.containers
        if any(_amount(n, container.limits[n], container.name) for n in names & {*container.limits})
    ]
    if len(asking) > 1:
        raise _Invalid(
            Problem(
                reasons.INVALID_REQUEST,
                f"containers {', '.join(asking)}",
                "ask for parts of a GPU, but the device plugin can serve only one such container "
                "in a pod: put them into one container or into several pods",
            )
        )


def _amounts(pod: objects.PodObject, source: PodSource) -> tuple[int, int, dict[str, int]]:
    """What the pod asks of the host: the larger of its containers' sum and its init containers.

    Source: Kubernetes `PodRequests`: restartable init containers (sidecars) keep running, so they
    add to what comes after them.
    """
    running: dict[str, int] = {}
    peak: dict[str, int] = {}
    init = pod.spec.init_containers or ()
    for spec, container in zip(init, source.init_containers, strict=True):
        amounts = _container_amounts(container)
        for name, amount in amounts.items():
            peak[name] = max(peak.get(name, 0), running.get(name, 0) + amount)
        if spec.restart_policy == "Always":
            for name, amount in amounts.items():
                running[name] = running.get(name, 0) + amount
    for container in source.containers:
        for name, amount in _container_amounts(container).items():
            running[name] = running.get(name, 0) + amount
    total = {name: max(running.get(name, 0), peak.get(name, 0)) for name in {**running, **peak}}
    for name, text in _texts(pod.spec.overhead).items():
        total[name] = total.get(name, 0) + _amount(name, text, "spec.overhead")
    for name, value in total.items():
        try:
            _bounded(value)
        except quantities.QuantityError as error:
            place = f"{name} of all containers"
            raise _Invalid(Problem(reasons.INVALID_REQUEST, place, str(error))) from error
    cpu_milli, memory_bytes = total.pop(CPU, 0), total.pop(MEMORY, 0)
    return cpu_milli, memory_bytes, {n: v for n, v in total.items() if v and _is_counted(n)}


def _container_amounts(container: ContainerSource) -> dict[str, int]:
    """Requests, where a missing one is its limit (the API server fills it in likewise)."""
    merged = {**container.limits, **container.requests}
    place = f"container {container.name!r}"
    return {name: _amount(name, text, place) for name, text in merged.items()}


def _amount(name: str, text: str, place: str) -> int:
    try:
        if name == CPU:
            return quantities.milli(text)
        return quantities.count(text) if _is_counted(name) else quantities.whole_up(text)
    except quantities.QuantityError as error:
        raise _Invalid(Problem(reasons.INVALID_REQUEST, f"{place}, {name}", str(error))) from error


def _bounded(value: int) -> int:
    if value > AMOUNT_MAX:
        raise quantities.QuantityError(f"{value} is absurdly large (at most {AMOUNT_MAX})")
    return value


def _is_counted(name: str) -> bool:
    """Extended resources, counted against what the node lists."""
    return (
        name not in NOT_COUNTED and name not in _UNADVERTISED and not name.startswith("hugepages-")
    )


def _constraints(spec: objects.PodSpec) -> Constraints:
    node_affinity = spec.affinity.node_affinity if spec.affinity else None
    required = node_affinity.required if node_affinity else None
    terms: tuple[NodeTerm, ...] = ()
    if required is not None:
        # Required terms of which there are none match no node, as a term without expressions does.
        terms = tuple(
            NodeTerm(_expressions(term.match_expressions), _expressions(term.match_fields))
            for term in required.node_selector_terms or ()
        ) or (NodeTerm(()),)
    return Constraints(
        node_selector=tuple(sorted((spec.node_selector or {}).items())),
        affinity=terms,
        tolerations=tuple(
            Toleration(t.key or "", t.operator or "Equal", t.value or "", t.effect or "")
            for t in spec.tolerations or ()
        ),
    )


def _expressions(found: list[objects.Expression] | None) -> tuple[Expression, ...]:
    return tuple(Expression(e.key, e.operator, tuple(e.values or ())) for e in found or ())


def _taints(taints: Iterable[objects.TaintObject]) -> list[Taint]:
    return [Taint(t.key, t.value or "", t.effect) for t in taints]


def _holdings(source: PodSource) -> tuple[Holding, ...]:
    return tuple(h for family in FAMILIES.values() for h in family.holdings(source)[0])


def _bind_phase(annotations: Mapping[str, str]) -> str:
    """What the device plugin says about a bound pod; the legacy one only says that it is done."""
    if annotations.get(keys.GPU_ASSIGNED, "false") != "false":
        return keys.PHASE_SUCCESS
    return annotations.get(keys.BIND_PHASE, "")


def _pod_source(pod: objects.PodObject) -> PodSource:
    return PodSource(
        pod.metadata.annotations or {},
        [_container(c) for c in pod.spec.containers or ()],
        [_container(c) for c in pod.spec.init_containers or ()],
    )


def _container(container: objects.Container) -> ContainerSource:
    resources = container.resources or objects.Resources()
    return ContainerSource(container.name, _texts(resources.limits), _texts(resources.requests))


def _texts(amounts: Mapping[str, objects.Amount] | None) -> dict[str, str]:
    return {name: str(amount) for name, amount in (amounts or {}).items()}


def _group(namespace: str, annotations: Mapping[str, str]) -> str:
    name = annotations.get(keys.GROUP_NAME) or annotations.get(keys.GROUP_NAME_VOLCANO)
    return f"{namespace}/{name}" if name else ""


def _version(text: str) -> int:
    """resourceVersions are whole numbers on every API server in use; 0 where one is not."""
    is_version = text.isascii() and text.isdigit() and len(text) <= VERSION_DIGITS_MAX
    return int(text) if is_version else 0


def _time_ms(text: str | None) -> int:
    if not text:
        return 0
    try:
        return int(datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()) * 1000
    except ValueError:
        return 0
