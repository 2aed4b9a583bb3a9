"""A pod as the log tells it.

A pod is seen several times in its life, and pods come in hundreds of a kind. What each kind asks
for is worked out once.
"""

from collections.abc import Collection
from functools import lru_cache

import msgspec

from allotment.core import reasons
from allotment.core.jobs import keys
from allotment.core.ledger import claims
from allotment.core.ledger.evictions import NEAR_S
from allotment.core.ledger.model import ENDED
from allotment.core.placement.devices.base import ContainerSource, PodSource
from allotment.core.units import cut
from allotment_proto.device_config import DeviceConfig
from allotment_proto.events import Ending, PodObserved
from allotment_proto.facts import ALONE, PodRequest, Policy, Problem
from allotment_watcher import objects
from allotment_watcher.normalise import deaths, devices, membership, resized
from allotment_watcher.normalise.amounts import Invalid, invalid, of_host, texts
from allotment_watcher.normalise.bounds import RESOURCE_NAMES_MAX, bounded_pod, too_many_names
from allotment_watcher.normalise.constraints import company_of, constraints_of, labels_of
from allotment_watcher.normalise.images import images_of_pod
from allotment_watcher.normalise.lens import BUILT_IN, Lens
from allotment_watcher.normalise.misnamed import misnamed
from allotment_watcher.normalise.times import time_ms
from allotment_watcher.normalise.volumes import NOTHING, Wanted

REQUEST_BYTES_MAX = 16 * 1024
"""One pod's huge affinity must never fill a record of the log, which would hold up all others."""
KINDS_REMEMBERED = 512
ERROR_CHARS_MAX = 300
ENDING_CHARS_MAX = 500
"""Of each text about a pod's end: enough for kubelet's sentences, and a bound on others."""
_GRACE_S_MAX = 1 << 33
"""Go's durations reach no further."""
DISRUPTION = "DisruptionTarget"
_OF_KUBERNETES_GROUP = Problem(
    reasons.INVALID_REQUEST,
    "spec.schedulingGroup",
    "Kubernetes' own gangs are not supported, and the pod would be placed without the others; name "
    f"a Volcano PodGroup in the annotation {keys.GROUP_NAME}, or leave the pod to a scheduler that "
    "knows them (schedulerName: default-scheduler)",
)


def pod_fact(
    pod: objects.PodObject, policy: Policy, config: DeviceConfig = BUILT_IN
) -> PodObserved:
    """A pod as the log tells it under a policy and a device configuration. Never raises."""
    return pod_through(_lens(policy, config), pod)


_lens = lru_cache(maxsize=8)(Lens)


def pod_through(
    lens: Lens,
    pod: objects.PodObject,
    wanted: Wanted | Problem = NOTHING,
    of_namespace: str = "",
    listed: Collection[str] = (),
) -> PodObserved:
    """A pod as the log tells it. Never raises: what is wrong becomes the fact's problem.

    `wanted` is what its volumes want of its node, or why they cannot be had; `of_namespace` the
    queue that its namespace names, if any; `listed` are the resources that its node has.
    """
    pod = resized.held(pod)
    meta, spec = pod.metadata, pod.spec
    status = pod.status or objects.PodStatus()
    annotations, labels = meta.annotations or {}, meta.labels or {}
    node, phase = spec.node_name or "", status.phase or "Pending"
    source = _source(pod, lens)
    is_ours = spec.scheduler_name in lens.policy.scheduler_names
    is_ended, is_placed_by_us = phase in ENDED, is_ours and not node
    member = membership.membership_of(meta, spec.priority, of_namespace, lens, is_ours=is_ours)
    problem: Problem | None = None
    asks: PodRequest | None = None
    try:
        request = asks = _request_of_kind(pod, source, lens)
        if isinstance(wanted, Problem):
            raise Invalid(wanted)
        if is_placed_by_us and spec.scheduling_group is not None:
            raise Invalid(_OF_KUBERNETES_GROUP)
        if is_placed_by_us and not lens.has_groups_made:
            gang = membership.gang_problem(annotations, member.group)
            if gang is not None:
                raise Invalid(gang)
        images = images_of_pod(pod) if is_placed_by_us and lens.weighs_images else ()
        request = _placed(request, pod, wanted, images)
        apart = devices.apart(lens, source, member.named, request, is_bound=bool(node))
        if apart:
            request = msgspec.structs.replace(request, apart=apart)
        asked = request.devices
    except Invalid as error:
        request = _running(pod, source, lens, listed) if node else PodRequest()
        problem, asked = error.problem, devices.readable(source) if node else ()
    held = devices.held(source, asked, node, lens)
    volumes = NOTHING if isinstance(wanted, Problem) else wanted
    fact = PodObserved(
        uid=meta.uid,
        namespace=meta.namespace,
        name=meta.name,
        rv=objects.version(meta.resource_version),
        created_ms=time_ms(meta.creation_timestamp),
        scheduler=spec.scheduler_name or "default-scheduler",
        request=request,
        priority=member.priority,
        gated=bool(spec.scheduling_gates),
        deleting=meta.deletion_timestamp is not None,
        phase=phase,
        node=node,
        holdings=held.holdings,
        bind_phase=held.phase,
        group=member.group,
        problem=problem,
        tags=devices.tags(lens, source, member.named, request, held.holdings),
        owner=member.owner,
        reason=status.reason or "",
        broken=None if is_ended else held.broken,
        role=member.role,
        preemptable=member.preemptable,
        priority_class=spec.priority_class_name or "",
        card_names=member.card_names,
        nominated_node=status.nominated_node_name or "",
        labels=labels_of(meta),
        claims=volumes.waiting,
        local_claims=() if node else volumes.local,
        preempts=spec.preemption_policy != membership.NEVER_PREEMPTS,
        annotated=() if is_ended else held.annotated,
        queue=member.queue,
        class_priority=member.class_priority,
        shares_pct=claims.shares_pct(held.holdings, asked),
        ending=_ending(status, is_ended=is_ended, is_deleting=bool(meta.deletion_timestamp)),
        misnamed=misnamed(annotations, labels, lens) if is_ours and not is_ended else (),
        unplaced=() if is_ended else held.unplaced,
        asks=_read(pod, source, lens, asks) if problem is not None and not node else None,
        standing=held.standing,
        grace_s=_grace_s(pod),
        deadline_ms=_deadline_ms(meta),
        image=deaths.image_of(pod.spec) if is_ours else "",
        died=deaths.death_of(pod) if is_ours and node else None,
    )
    if not (is_ours or node):
        fact = _left_to_others(fact, devices.named(source, lens))
    return bounded_pod(fact)


def _read(
    pod: objects.PodObject, source: PodSource, lens: Lens, asks: PodRequest | None
) -> PodRequest | None:
    """What a pod with a problem asks for: known where its volumes or its group are the problem, and
    where resource claims are, of all else; None where it cannot be read.
    """
    if asks is not None or not pod.spec.resource_claims:
        return asks
    spec = msgspec.structs.replace(pod.spec, resource_claims=None)
    try:
        return _request_of_kind(msgspec.structs.replace(pod, spec=spec), source, lens)
    except Invalid:
        return None


def _grace_s(pod: objects.PodObject) -> int:
    """How long a pod may take to end; 0 if others can wait for it."""
    given = pod.metadata.deletion_grace_period_seconds
    grace_s = pod.spec.termination_grace_period_seconds if given is None else given
    return min(grace_s, _GRACE_S_MAX) if grace_s is not None and grace_s > NEAR_S else 0


def _deadline_ms(meta: objects.Meta) -> int:
    """When a pod has to have ended that is being deleted; 0 if it is not."""
    if (meta.deletion_grace_period_seconds or 0) >= _GRACE_S_MAX:
        return _GRACE_S_MAX * 1000  # the API server's own sum of such a grace wraps around
    return time_ms(meta.deletion_timestamp)


def _ending(status: objects.PodStatus, *, is_ended: bool, is_deleting: bool) -> Ending | None:
    """What Kubernetes says about the end of a pod; None while there is none, or nothing is said."""
    if not (is_ended or is_deleting):
        return None
    container, exit_code, exit_reason = _failed_container(status) if is_ended else ("", 0, "")
    disruption = next(
        (c for c in status.conditions or () if c.type == DISRUPTION and c.status == "True"),
        objects.PodCondition(),
    )
    ending = Ending(
        message=cut((is_ended and status.message) or "", ENDING_CHARS_MAX),
        container=cut(container, ENDING_CHARS_MAX),
        exit_code=exit_code,
        exit_reason=cut(exit_reason, ENDING_CHARS_MAX),
        disruption=cut(disruption.reason or "", ENDING_CHARS_MAX),
        disruption_message=cut(disruption.message or "", ENDING_CHARS_MAX),
    )
    return None if ending == Ending() else ending


def _failed_container(status: objects.PodStatus) -> tuple[str, int, str]:
    """The first container that ended with an exit code other than 0: name, code, reason."""
    for container in (*(status.init_container_statuses or ()), *(status.container_statuses or ())):
        ended = container.state and container.state.terminated
        if ended and ended.exit_code:
            return container.name, ended.exit_code, ended.reason or ""
    return "", 0, ""


def _left_to_others(fact: PodObserved, card_resources: tuple[str, ...]) -> PodObserved:
    """A pod that waits for another scheduler: its request and labels are not read before it has a
    node. Whether it asks for cards is recorded.
    """
    return msgspec.structs.replace(
        fact,
        request=PodRequest(),
        labels=(),
        tags=(),
        problem=None,
        claims=(),
        card_resources=card_resources,
        asks=None,
    )


def unreadable_pod_fact(
    namespace: str, name: str, uid: str, seen: objects.PodGlimpse, error: str
) -> PodObserved:
    """The fact about a pod that exists but does not fit the API's types.

    Without a version, so that it never displaces what was read of the pod before: its cards must
    not count as free because an annotation broke. What a running pod holds that was never
    read is unknown: until it is readable or gone, its node's cards get no new pods.
    """
    error = cut(error, ERROR_CHARS_MAX)
    node = seen.spec.node_name or ""
    phase = (seen.status and seen.status.phase) or "Pending"
    problem = Problem(reasons.INVALID_REQUEST, "the pod object", f"cannot be read: {error}")
    return PodObserved(
        uid=uid,
        namespace=namespace,
        name=name,
        rv=0,
        created_ms=0,
        scheduler=seen.spec.scheduler_name or "",
        request=PodRequest(),
        phase=phase,
        node=node,
        problem=problem,
        broken=problem if node and phase not in ENDED else None,
    )


def _kind(pod: objects.PodObject) -> bytes:
    """What a pod's request depends on, and nothing that differs between pods of a kind."""
    # Bound or not makes a difference, where does not; volumes and rules about other pods are read
    # for each pod.
    spec = msgspec.structs.replace(
        pod.spec,
        node_name="bound" if pod.spec.node_name else None,
        containers=[msgspec.structs.replace(c, image=None) for c in pod.spec.containers or ()],
        init_containers=[
            msgspec.structs.replace(c, image=None) for c in pod.spec.init_containers or ()
        ],
        volumes=None,
        topology_spread_constraints=None,
        scheduling_group=None,
    )
    annotations, labels = pod.metadata.annotations or {}, pod.metadata.labels or {}
    asked = [(name, annotations[name]) for name in sorted(devices.ASKED & annotations.keys())]
    asked_labels = [(name, labels[name]) for name in sorted(devices.ASKED_LABELS & labels.keys())]
    return msgspec.json.encode((spec, asked, asked_labels))


def _request_of_kind(pod: objects.PodObject, source: PodSource, lens: Lens) -> PodRequest:
    """The request of every pod of a kind. Raises `Invalid` (which is not remembered)."""
    kind = _kind(pod)
    request = lens.requests.get(kind)
    if request is None:
        request = _request(pod, source, lens)
        if len(lens.requests) >= KINDS_REMEMBERED:
            del lens.requests[next(iter(lens.requests))]
        lens.requests[kind] = request
    return request


def _request(pod: objects.PodObject, source: PodSource, lens: Lens) -> PodRequest:
    is_bound = bool(pod.spec.node_name)
    excess = too_many_names(_names(source, pod), "spec.containers")
    if excess is not None:
        raise Invalid(excess)
    if pod.spec.resource_claims and not is_bound:
        raise invalid(
            "spec.resourceClaims",
            "dynamic resource allocation is not supported; leave the pod to a scheduler that "
            "allocates claims (schedulerName: default-scheduler)",
        )
    wanted, chosen = devices.asked(source, lens, is_bound=is_bound)
    host = of_host(pod, source, lens)
    request = PodRequest(
        cpu_milli=host.cpu_milli,
        memory_bytes=host.memory_bytes,
        extended=tuple(sorted(host.extended.items())),
        devices=wanted,
        selection=devices.of_counted(source, chosen, host.extended, lens, is_bound=is_bound),
        constraints=constraints_of(pod.spec),
        unrequested=host.unrequested,
    )
    _bounded(request)
    return request


def _bounded(request: PodRequest) -> None:
    size_bytes = len(msgspec.json.encode(request))
    if size_bytes > REQUEST_BYTES_MAX:
        raise invalid(
            "the pod's constraints", f"take {size_bytes} bytes; at most {REQUEST_BYTES_MAX}"
        )


def _placed(
    request: PodRequest, pod: objects.PodObject, wanted: Wanted, images: tuple[str, ...]
) -> PodRequest:
    """The request of a kind with what is about this pod: others near it, its volumes and images."""
    company = company_of(pod)
    if wanted.sole:
        company = msgspec.structs.replace(company, sole=wanted.sole)
    if company == ALONE and not (wanted.reach or wanted.attachments or images):
        return request
    request = msgspec.structs.replace(
        request,
        company=company,
        constraints=msgspec.structs.replace(request.constraints, volumes=wanted.reach),
        attachments=wanted.attachments,
        images=images,
    )
    _bounded(request)
    return request


def _running(
    pod: objects.PodObject, source: PodSource, lens: Lens, listed: Collection[str]
) -> PodRequest:
    """What a pod that runs although we would refuse it takes of its host, as far as it says so.

    Of too many resources only those count that its node has: it has no others.
    """
    try:
        host = of_host(pod, source, lens)
    except Invalid:
        return PodRequest()
    extended = host.extended
    if len(extended) > RESOURCE_NAMES_MAX:
        extended = {name: extended[name] for name in extended.keys() & set(listed)}
    return PodRequest(host.cpu_milli, host.memory_bytes, tuple(sorted(extended.items())))


def _names(source: PodSource, pod: objects.PodObject) -> set[str]:
    """The resources that a pod and its containers name."""
    own = pod.spec.resources or objects.Resources()
    found = set[str]().union(*(amounts or () for amounts in (own.limits, own.requests)))
    for container in (*source.containers, *source.init_containers):
        found.update(container.limits, container.requests)
    return found.union(pod.spec.overhead or ())


def _source(pod: objects.PodObject, lens: Lens) -> PodSource:
    return PodSource(
        pod.metadata.annotations or {},
        [_container(c) for c in pod.spec.containers or ()],
        [_container(c) for c in pod.spec.init_containers or ()],
        pod.metadata.labels or {},
        lens.config,
    )


def _container(container: objects.Container) -> ContainerSource:
    resources = container.resources or objects.Resources()
    return ContainerSource(container.name, texts(resources.limits), texts(resources.requests))
