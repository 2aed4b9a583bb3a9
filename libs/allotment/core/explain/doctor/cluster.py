"""Problems of one state: configurations, nodes and their cards, pods that hold devices, groups and
quotas. Kubernetes and NATS are not asked.
"""

from collections.abc import Collection, Iterable, Iterator

import msgspec

from allotment.core.explain.doctor.finding import (
    ANNOTATION,
    ERROR,
    PLUGIN,
    PODS_MAX,
    TENANT,
    WARNING,
    Finding,
    counted,
    names_of,
    namespaces_of,
    shown_names,
)
from allotment.core.explain.history.story import corrected_text
from allotment.core.explain.rows.acknowledgement import (
    LATE_AFTER_S,
    forged,
    is_acknowledged,
    standing_record,
    standing_text,
    waiting_for,
)
from allotment.core.explain.rows.views import (
    device_name,
    node_problems,
)
from allotment.core.ledger.check import check
from allotment.core.ledger.claims import mismatch, unreadable
from allotment.core.ledger.model import ENDED, ClusterState, Node, Pod
from allotment.core.placement.devices import FAMILIES
from allotment.core.queues.round.guaranteed import guaranteed, guaranteed_text
from allotment.core.queues.round.quota import QueueHolder
from allotment.core.queues.round.verdict import quota_waits
from allotment.core.reasons import (
    CARDS_QUARANTINED,
    GUARANTEE_TOO_LARGE,
    NODE_GONE,
    NODE_NOT_READY,
    NOT_ACKNOWLEDGED,
    QUEUE_QUOTA,
    REASONS,
    Cure,
)
from allotment.core.units import age_text
from allotment_proto.events import DEVICE_CONFIG, SCHEDULER_CONFIG
from allotment_proto.volcano import keys

_NO_CONFIG = "ConfigNotFound"
_CLAIM_REMEDY = (
    "find out who changed the pod's annotations, or the device configuration that they are read "
    "with; delete the pod if its containers may use what it claims. The log's allocation stays"
)
_READ_BY_ANOTHER = (
    f"fix {_NO_CONFIG} first: annotations are read with another device configuration than the "
    "scheduler names, which may be the only cause"
)
_ARCHIVED_WITHIN_MS = 3_600_000
_WAITING_SHOWN = 3
_NAMED_OF_NODE = 5
_BIND_FAILURES = 3
_HOLDERS_SHOWN = 5
_UNUSED = "no pod uses any of it, so the request exceeds the whole quota"


_FAMILY_OF = {code: family.name for family in FAMILIES.values() for code in family.own_problems}
"""Problems of a node that are about one family of devices."""


class Source(msgspec.Struct, frozen=True):
    """Where the active configuration of a kind was read, and its record (0: it is built in)."""

    kind: str
    source: str
    seq: int


def sources(state: ClusterState) -> tuple[Source, ...]:
    """Where the scheduler's and the devices' active configurations come from."""
    seqs = {SCHEDULER_CONFIG: state.policy_seq, DEVICE_CONFIG: state.devices_seq}
    return tuple(
        Source(kind, state.config_sources.get(kind, "built in"), seq) for kind, seq in seqs.items()
    )


def of_configuration(state: ClusterState) -> list[Finding]:
    """The lines of the configurations that are rejected or have no effect."""
    return list(_of_configuration(state))


def of_cluster(state: ClusterState, time_ms: int) -> list[Finding]:
    """Problems of the books, nodes, cards, pods that hold devices, groups and quotas."""
    return [
        *(_books(state)),
        *(one for node in state.nodes.values() for one in _of_node(state, node)),
        *_of_failing_nodes(state),
        *_of_pods(state, state.pods.values(), time_ms // 1000),
        *_of_bindings(state),
        *_of_groups(state),
        *_of_guarantees(state),
        *_of_quotas(state),
        *_of_segments(state, time_ms),
    ]


def _of_segments(state: ClusterState, time_ms: int) -> Iterator[Finding]:
    """Segments that should have been archived by now, where there is an archiver."""
    live = state.segments.live
    if not state.segments.dropped_seq and not any(each.archived for each in live):
        return
    late = [
        each.closed
        for each in live
        if each.archived is None and time_ms - each.closed.at_ms > _ARCHIVED_WITHIN_MS
    ]
    if late:
        since = age_text((time_ms - late[0].at_ms) // 1000)
        yield Finding(
            severity=WARNING,
            code="SegmentNotArchived",
            subject=f"log segment {late[0].number}",
            message=f"was closed {since} ago and is not archived, as {len(late)} in all, so "
            "nothing leaves NATS; once the log is full no pod is scheduled",
            remedy="read /readyz and the log of the archiver: it names what it cannot reach",
            seq=late[0].last_seq,
        )


def _is_read_by_another(state: ClusterState) -> bool:
    """Whether annotations are read by another device configuration than the policy names."""
    check = state.config_checks.get(DEVICE_CONFIG)
    return check is not None and any(w.code == _NO_CONFIG for w in check[1].warnings)


def _books(state: ClusterState) -> Iterator[Finding]:
    for wrong in check(state):
        yield Finding(
            severity=ERROR,
            code="BooksContradict",
            subject="log",
            message=wrong,
            remedy="keep the log and report this: it is a defect of Allotment",
            seq=state.seq,
        )


def _of_configuration(state: ClusterState) -> Iterator[Finding]:
    in_force = {SCHEDULER_CONFIG: state.policy_seq, DEVICE_CONFIG: state.devices_seq}
    for kind, (seq, checked) in state.config_checks.items():
        older = in_force.get(kind, 0)
        what = f"that of seq {older} (allot log show {older})" if older else "the built-in one"
        subject = f"{kind} configuration {checked.source}"
        for problem in checked.problems:
            yield Finding(
                severity=ERROR,
                code=problem.code,
                subject=subject,
                message=f"{problem.place} {problem.message}",
                remedy=f"fix it; until then {what} stays active",
                seq=seq,
            )
        for warning in checked.warnings:
            yield Finding(
                severity=WARNING,
                code=warning.code,
                subject=subject,
                message=f"{warning.place} {warning.message}",
                remedy=_config_advice(warning.code),
                seq=seq,
            )


def _config_advice(code: str) -> str:
    """What to do about a warning: some are not about a line of a text."""
    reason = REASONS.get(code)
    if reason is not None and reason.cured_by is Cure.SOURCE:
        return reason.advice
    return "fix or remove that line; all other lines apply"


def _of_node(state: ClusterState, node: Node) -> Iterator[Finding]:
    subject = f"node {node.name}"
    if node.fact is None or not node.fact.ready:
        yield from _of_absent_node(node)
    for problem in node_problems(state, node):
        if problem.code == NODE_GONE:
            continue
        if _FAMILY_OF.get(problem.code, "") not in ("", *state.policy.families):
            continue  # no pod is scheduled with this family, so its device plugin may be absent
        reason = REASONS.get(problem.code)
        yield Finding(
            severity=ERROR if reason is not None and reason.is_error else WARNING,
            code=problem.code,
            subject=subject,
            message=f"{problem.place}: {problem.message}",
            remedy=f"allot ledger --node {node.name}" if reason is None else reason.advice,
            seq=problem.seq,
            place=problem.place,
            card=problem.card,
        )
    for uid in sorted(node.broken):
        pod = state.pods[uid].fact
        why = "" if pod.broken is None else f": {pod.broken.place} {pod.broken.message}"
        yield Finding(
            severity=ERROR,
            code=CARDS_QUARANTINED,
            subject=subject,
            message=f"no new pods are placed on its cards because of pod {pod.namespace}/"
            f"{pod.name}{why}",
            remedy="fix the pod's annotation or delete the pod",
            namespaces=(pod.namespace,),
        )
    # A snapshot keeps no order of allocations, and what is found must not depend on it.
    allocations = [node.allocations[uid] for uid in sorted(node.allocations)]
    for held in allocations:
        found = unreadable(state.pods[held.uid]) if held.unplaced else None
        if found is not None:
            pod = state.pods[held.uid].fact
            yield Finding(
                severity=WARNING,
                code=found.code,
                subject=f"pod {pod.namespace}/{pod.name}",
                message=f"{found.place} {found.message}",
                remedy=REASONS[found.code].advice,
                namespaces=(pod.namespace,),
            )
    listed = {(family, card) for family, x in node.ledgers.items() for card in x.by_id}
    for held in allocations:
        for holding in held.holdings:
            if node.fact is not None and (holding.family, holding.card) not in listed:
                pod = state.pods[held.uid].fact
                yield Finding(
                    severity=WARNING,
                    code="CardNotListed",
                    subject=f"{subject}, card {holding.card}",
                    message=f"is in use by {pod.namespace}/{pod.name}, but not listed by its node",
                    remedy="check the device plugin, or delete the pod",
                    seq=held.seq,
                    namespaces=(pod.namespace,),
                    card=holding.card,
                )


def _of_failing_nodes(state: ClusterState) -> Iterator[Finding]:
    """What nodes that are held back have in common, and no other node with devices has: a version
    of the driver or the device plugin, where labels tell it, or a model of card.
    """
    here = [n for n in state.nodes.values() if n.fact and (n.ledgers or n.fact.extended)]
    held = {place[0] for place, health in state.health.items() if health.since and not place[1]}
    failing = [_marks(node) for node in here if node.name in held]
    if len(failing) < 2 or len(failing) == len(here):
        return
    others = set[str]().union(*(_marks(node) for node in here if node.name not in held))
    alike = sorted(set.intersection(*failing) - others)
    if alike:
        names = sorted(held)
        yield Finding(
            severity=WARNING,
            code="FailingNodesAlike",
            subject=f"nodes {shown_names(names)}",
            message="are held back, and no other node with devices has " + shown_names(alike),
            remedy="check first whether that is the cause",
        )


def _marks(node: Node) -> set[str]:
    """A node's labels and the models of its cards, in words."""
    models = {card.fact.model for ledger in node.ledgers.values() for card in ledger.cards}
    return {f"{key}={value}" for key, value in node.labels.items()} | {f"{m} cards" for m in models}


def _of_absent_node(node: Node) -> Iterator[Finding]:
    """A node that is gone or not ready, with the pods that are on it."""
    on = [held.fact for held in node.allocations.values() if held.fact is not None]
    names = names_of(on)
    cards = {(h.family, h.card) for held in node.allocations.values() for h in held.holdings}
    if not node.allocations:
        return
    on_it = f"{counted(len(node.allocations), 'pod')} on it: {shown_names(names, _NAMED_OF_NODE)}"
    has = f"; they hold shares of {counted(len(cards), 'card')}" if cards else ""
    if node.fact is None:
        code, message = NODE_GONE, f"is gone from the API server, with {on_it}{has}"
        remedy = (
            f"delete the pods if the machine is gone for good (kubectl get pods -A "
            f"--field-selector spec.nodeName={node.name}), or restart its kubelet"
        )
    else:
        code, message = NODE_NOT_READY, f"is not ready, with {on_it}{has}"
        remedy = f"see why: kubectl describe node {node.name}. No new pods are placed on it"
    yield Finding(
        severity=ERROR if node.fact is None else WARNING,
        code=code,
        subject=f"node {node.name}",
        message=message,
        remedy=remedy,
        pods=tuple(names[:PODS_MAX]),
        pods_total=len(node.allocations),
        namespaces=namespaces_of(on),
    )


def _of_bindings(state: ClusterState) -> Iterator[Finding]:
    """Pods whose Binding fails again and again."""
    for pod in (state.pods[uid] for uid in state.pending):
        if pod.bind_failures >= _BIND_FAILURES:
            yield Finding(
                severity=WARNING,
                code="BindingFails",
                subject=f"pod {pod.fact.namespace}/{pod.fact.name}",
                message=f"its Binding failed {pod.bind_failures} times in a row and is retried",
                remedy=f"read the API server's answers: allot log --pod {pod.fact.namespace}/"
                f"{pod.fact.name} --type BindFailed",
                namespaces=(pod.fact.namespace,),
            )


def of_pod(state: ClusterState, pod: Pod, time_ms: int) -> list[Finding]:
    """The problems of a placed pod's node, cards, device plugin and annotations. None for a pod
    without a place.
    """
    held = pod.allocation
    node = None if held is None else state.nodes.get(held.node)
    if held is None or node is None:
        return []
    cards = {holding.card for holding in held.holdings}
    who = f"pod {pod.fact.namespace}/{pod.fact.name}"
    on_node = [one for one in _of_node(state, node) if _is_under(one, who, cards)]
    return [*on_node, *_of_pods(state, [pod], time_ms // 1000)]


def _is_under(one: Finding, who: str, cards: Collection[str]) -> bool:
    """Whether a problem of a node is one for a pod there that holds these cards."""
    if one.code in (NODE_GONE, NODE_NOT_READY):
        return True
    if one.card:
        return one.card in cards
    if one.subject.startswith("pod "):
        return one.subject == who
    return bool(cards) and one.code not in (CARDS_QUARANTINED, "UnknownFamily")


def _of_pods(state: ClusterState, pods: Iterable[Pod], now_s: int) -> Iterator[Finding]:
    by_another = _is_read_by_another(state)
    for pod in pods:
        fact, held = pod.fact, pod.allocation
        who = f"pod {fact.namespace}/{fact.name}"
        claim = mismatch(pod)
        if claim is not None:
            yield Finding(
                severity=WARNING,
                code=claim.code,
                subject=who,
                message=f"{claim.place} {claim.message}",
                remedy=_READ_BY_ANOTHER if by_another else _CLAIM_REMEDY,
                seq=0 if held is None else held.seq,
                blame=ANNOTATION,
                namespaces=(fact.namespace,),
            )
        said = forged(pod)
        if said is not None:
            yield Finding(
                severity=ERROR if pod.forged_on else WARNING,
                code=said.code,
                subject=who,
                message=f"{said.place} {said.message}",
                remedy="delete the pod and ask its owner. Install the admission policy in "
                "deploy/base/annotation-policy.yaml, which rejects such annotations",
                blame=ANNOTATION,
                namespaces=(fact.namespace,),
            )
        found = state.corrected.get(fact.uid)
        if found is not None:
            at, corrected = found
            of = ", ".join(_forgers_of(state, corrected.node))
            perhaps = f", perhaps that of {of}" if of and not corrected.served else ""
            yield Finding(
                severity=ERROR,
                code=corrected.code,
                subject=who,
                message=f"{corrected_text(corrected)}{perhaps}",
                remedy="recreate this pod, so that it gets its own devices; it did nothing wrong",
                seq=at,
                blame=PLUGIN,
                namespaces=(fact.namespace,),
            )
        work_list = standing_record(pod)
        if work_list is not None:
            yield Finding(
                severity=WARNING,
                code="RecordNotErased",
                subject=who,
                message=f"{standing_text(pod)}: no such pod is bound before it is erased",
                remedy="check that a binder runs and may patch pods/status. By hand: kubectl -n "
                f"{fact.namespace} annotate --overwrite pod {fact.name} "
                f"{work_list}=",
                namespaces=(fact.namespace,),
            )
        if fact.bind_phase == keys.PHASE_FAILED and fact.phase not in ENDED and fact.node:
            cards = ", ".join(
                device_name(state.nodes.get(fact.node), holding) for holding in fact.holdings
            )
            yield Finding(
                severity=WARNING,
                code="DevicesNotAssigned",
                subject=who,
                message=f"the device plugin of {fact.node} rejected it ({cards or 'no card'})",
                remedy=f"read the plugin's log on {fact.node}; the pod will not start",
                namespaces=(fact.namespace,),
            )
        elif (
            held is not None
            and fact.node == held.node
            and now_s - held.stamp_s > LATE_AFTER_S
            and held.holdings
            and not is_acknowledged(pod)
        ):
            since = f" for {age_text(now_s - held.stamp_s)}" if held.stamp_s else ""
            yield Finding(
                severity=WARNING,
                code=NOT_ACKNOWLEDGED,
                subject=who,
                message=f"is bound to {fact.node}, whose device plugin has not handled it{since}"
                + _kept_waiting(waiting_for(state, pod)),
                remedy=f"check that the plugin of {fact.node} runs; if the pod does not start, "
                "delete it",
                seq=held.seq,
                namespaces=(fact.namespace,),
            )


def _forgers_of(state: ClusterState, node: str) -> Iterator[str]:
    """The pods with records for the node that no scheduler wrote."""
    for pod in state.pods.values():
        if pod.forged and node in pod.forged:
            yield f"{pod.fact.namespace}/{pod.fact.name}"


def _kept_waiting(pods: list[Pod]) -> str:
    """The pods that wait behind it with the same request to the plugin, the first by name."""
    if not pods:
        return ""
    names = [f"{pod.fact.namespace}/{pod.fact.name}" for pod in pods[:_WAITING_SHOWN]]
    more = len(pods) - len(names)
    names += [f"{more} more"] if more else []
    return f"; {', '.join(names)} wait{'s' * (len(pods) == 1)} for that"


def _of_groups(state: ClusterState) -> Iterator[Finding]:
    for key, group in state.groups.items():
        if group.fact is not None and group.fact.problem is not None:
            problem = group.fact.problem
            yield Finding(
                severity=WARNING,
                code=problem.code,
                subject=f"group {key}",
                message=f"{problem.place} {problem.message}",
                remedy=_advice_of(problem.code),
                kind=TENANT,
                namespaces=(key.partition("/")[0],),
            )
    for queue in state.queues.values():
        if queue.problem is not None:
            yield Finding(
                severity=WARNING,
                code=queue.problem.code,
                subject=f"queue {queue.name}",
                message=f"{queue.problem.place} {queue.problem.message}",
                remedy=_advice_of(queue.problem.code),
            )


def _advice_of(code: str) -> str:
    return REASONS[code].advice if code in REASONS else "fix what is named above"


def _of_guarantees(state: ClusterState) -> Iterator[Finding]:
    """Queues with guarantees above the cluster's capacity, so that all others get nothing."""
    for found in guaranteed(state):
        if found.is_too_much:
            yield Finding(
                severity=WARNING,
                code=GUARANTEE_TOO_LARGE,
                subject=f"queue {next(iter(found.queues))}",
                message=f"{guaranteed_text(state, found)}: other queues get no {found.resource}",
                remedy=REASONS[GUARANTEE_TOO_LARGE].advice,
            )


def _of_quotas(state: ClusterState) -> Iterator[Finding]:
    """Queues whose quota pods wait for, and the jobs and pods that use it."""
    if not state.is_batched or all(node.fact is None for node in state.nodes.values()):
        return  # without nodes what queues may have is a share of nothing
    too_much = [found for found in guaranteed(state) if found.is_too_much]
    for name, wait in quota_waits(state).items():
        jobs, has = wait.waiting, [holder for holder in wait.holders if holder.pods]
        shown = [_holder_text(holder) for holder in has[:_HOLDERS_SHOWN]]
        shown += [f"{len(has) - len(shown)} more"] if len(has) > len(shown) else []
        more = f" and {len(jobs) - 1} more wait" if len(jobs) > 1 else " waits"
        why = "; ".join(guaranteed_text(state, one) for one in too_much) or _UNUSED
        yield Finding(
            severity=WARNING,
            code=QUEUE_QUOTA,
            subject=f"queue {name}",
            message=f"{jobs[0]}{more} for its quota"
            + (f", which is in use by {', '.join(shown)}" if has else f"; {why}"),
            remedy="raise the queue's quota, or "
            f"{'wait for them to end' if has else 'request less'}: allot explain queue {name}",
            kind=TENANT,
            namespaces=tuple(sorted({job.removeprefix("pod ").partition("/")[0] for job in jobs})),
        )


def _holder_text(holder: QueueHolder) -> str:
    name = f"{'pod ' * holder.is_pod}{holder.namespace}/{holder.name}"
    return f"{name} ({holder.pods} pod{'s' * (holder.pods > 1)})"
