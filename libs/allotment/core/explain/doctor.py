"""What is wrong in a cluster as the log tells it: things that somebody should look at.

Everything here follows from one state; nothing is asked of Kubernetes or of NATS.
"""

from collections.abc import Iterator

import msgspec

from allotment.core.explain.acknowledgement import (
    LATE_AFTER_S,
    is_acknowledged,
    standing_record,
    standing_text,
    waiting_for,
)
from allotment.core.explain.story import corrected_text
from allotment.core.explain.views import device_name, node_problems
from allotment.core.ledger.check import check
from allotment.core.ledger.claims import mismatch
from allotment.core.ledger.model import ENDED, ClusterState, Node, Pod
from allotment.core.placement.devices import FAMILIES
from allotment.core.placement.unserved import unserved
from allotment.core.queues.round.verdict import Holder, quota_waits
from allotment.core.reasons import NOT_ACKNOWLEDGED, QUEUE_QUOTA, REASONS, Cure
from allotment.core.units import age_text
from allotment_proto.events import DEVICE_CONFIG, SCHEDULER_CONFIG, PodObserved
from allotment_proto.facts import PodRequest
from allotment_proto.volcano import keys

ERROR, WARNING = "error", "warning"
NO_CONFIG = "ConfigNotFound"
CLAIM_REMEDY = (
    "the books are right; find out who changed the pod's annotations, or the device configuration "
    "by which they are read, and delete the pod if its containers may use what it claims"
)
READ_BY_ANOTHER = (
    f"see to {NO_CONFIG} first: annotations are read by another device configuration than the "
    "scheduler's names, which may be all that is wrong here"
)
WAITING_SHOWN = 3
HOLDERS_SHOWN = 5
NOBODY_HAS_IT = "nobody holds any of it, so more is asked for than the queue may have"


FAMILY_OF = {code: family.name for family in FAMILIES.values() for code in family.own_problems}
"""Problems of a node that are about one family of devices."""


class Finding(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One thing: how bad (`error`: something is refused or oversold because of it), what, where,
    and what to do about it. `seq` is the record to look at first, 0 if there is none.
    """

    severity: str
    code: str
    subject: str
    message: str
    remedy: str
    seq: int = 0


class Source(msgspec.Struct, frozen=True):
    """Where the configuration of a kind that is in force was read, and the record that says so (0:
    none, it is built in).
    """

    kind: str
    source: str
    seq: int


def sources(state: ClusterState) -> tuple[Source, ...]:
    """Where the scheduler's and the devices' configuration in force are from."""
    seqs = {SCHEDULER_CONFIG: state.policy_seq, DEVICE_CONFIG: state.devices_seq}
    return tuple(
        Source(kind, state.config_sources.get(kind, "built in"), seq) for kind, seq in seqs.items()
    )


def findings(state: ClusterState, time_ms: int) -> list[Finding]:
    """Everything that stands out at that Unix time, errors first. Of errors and of warnings what is
    about a configuration comes first, as others may follow from it; then by code and subject.
    """
    configuration = list(_of_configuration(state))
    found = [
        *(_books(state)),
        *(one for node in state.nodes.values() for one in _of_node(state, node)),
        *_of_pods(state, time_ms // 1000),
        *_of_unserved(state),
        *_of_groups(state),
        *_of_quotas(state),
    ]
    found.sort(key=_rank)
    configuration.sort(key=_rank)
    errors = sum(one.severity == ERROR for one in found)
    grave = sum(one.severity == ERROR for one in configuration)
    return [*configuration[:grave], *found[:errors], *configuration[grave:], *found[errors:]]


def _rank(finding: Finding) -> tuple[bool, str, str, str]:
    return finding.severity != ERROR, finding.code, finding.subject, finding.message


def _is_read_by_another(state: ClusterState) -> bool:
    """Whether annotations are read by another device configuration than the policy names."""
    check = state.config_checks.get(DEVICE_CONFIG)
    return check is not None and any(w.code == NO_CONFIG for w in check[1].warnings)


def _books(state: ClusterState) -> Iterator[Finding]:
    for wrong in check(state):
        yield Finding(
            severity=ERROR,
            code="BooksContradict",
            subject="log",
            message=wrong,
            remedy="this is a fault of Allotment: keep the log and report it",
            seq=state.seq,
        )


def _of_configuration(state: ClusterState) -> Iterator[Finding]:
    in_force = {SCHEDULER_CONFIG: state.policy_seq, DEVICE_CONFIG: state.devices_seq}
    for kind, (seq, checked) in state.config_checks.items():
        older = in_force.get(kind, 0)
        what = f"that of seq {older} (allot log show {older})" if older else "what is built in"
        subject = f"{kind} configuration {checked.source}"
        for problem in checked.problems:
            yield Finding(
                severity=ERROR,
                code=problem.code,
                subject=subject,
                message=f"{problem.place} {problem.message}",
                remedy=f"mend it; until then {what} stays in force",
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
    return "mend or remove that line; the rest is followed"


def _of_node(state: ClusterState, node: Node) -> Iterator[Finding]:
    subject = f"node {node.name}"
    for problem in node_problems(node):
        if FAMILY_OF.get(problem.code, "") not in ("", *state.policy.families):
            continue  # nobody is scheduled by it, so its device plugin may well be absent
        reason = REASONS.get(problem.code)
        yield Finding(
            severity=ERROR if reason is not None and reason.is_error else WARNING,
            code=problem.code,
            subject=subject,
            message=f"{problem.place}: {problem.message}",
            remedy=f"allot ledger --node {node.name}" if reason is None else reason.advice,
        )
    for uid in sorted(node.broken):
        pod = state.pods[uid].fact
        why = "" if pod.broken is None else f": {pod.broken.place} {pod.broken.message}"
        yield Finding(
            severity=ERROR,
            code="CardsQuarantined",
            subject=subject,
            message=f"its cards take nothing new because of pod {pod.namespace}/{pod.name}{why}",
            remedy="mend the pod's annotation, or delete the pod",
        )
    listed = {(family, card) for family, x in node.ledgers.items() for card in x.by_id}
    for held in node.allocations.values():
        for holding in held.holdings:
            if node.fact is not None and (holding.family, holding.card) not in listed:
                pod = state.pods[held.uid].fact
                yield Finding(
                    severity=WARNING,
                    code="CardNotListed",
                    subject=f"{subject}, card {holding.card}",
                    message=f"is held by {pod.namespace}/{pod.name} and not listed by its node",
                    remedy="look after the device plugin, or end the pod",
                    seq=held.seq,
                )


def _of_pods(state: ClusterState, now_s: int) -> Iterator[Finding]:
    by_another = _is_read_by_another(state)
    for pod in state.pods.values():
        fact, held = pod.fact, pod.allocation
        who = f"pod {fact.namespace}/{fact.name}"
        claim = mismatch(pod)
        if claim is not None:
            yield Finding(
                severity=WARNING,
                code=claim.code,
                subject=who,
                message=f"{claim.place} {claim.message}",
                remedy=READ_BY_ANOTHER if by_another else CLAIM_REMEDY,
                seq=0 if held is None else held.seq,
            )
        found = state.corrected.get(fact.uid)
        if found is not None:
            at, corrected = found
            yield Finding(
                severity=ERROR,
                code=corrected.code,
                subject=who,
                message=corrected_text(corrected),
                remedy="delete the pod: it uses devices that were meant for another one",
                seq=at,
            )
        work_list = standing_record(fact)
        if work_list is not None:
            yield Finding(
                severity=WARNING,
                code="RecordNotErased",
                subject=who,
                message=f"{standing_text(fact)}: no such pod is bound before it is erased",
                remedy="does a binder run, and may it patch pods/status? By hand: kubectl -n "
                f"{fact.namespace} annotate --overwrite pod {fact.name} "
                f"{work_list}=",
            )
        if fact.bind_phase == keys.PHASE_FAILED and fact.phase not in ENDED and fact.node:
            cards = ", ".join(
                device_name(state.nodes.get(fact.node), holding) for holding in fact.holdings
            )
            yield Finding(
                severity=WARNING,
                code="DevicesNotAssigned",
                subject=who,
                message=f"the device plugin of {fact.node} refused it ({cards or 'no card'})",
                remedy=f"see the plugin's log on {fact.node}; the pod will not start",
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
                message=f"is bound to {fact.node}, whose device plugin has not served it{since}"
                + _kept_waiting(waiting_for(state, pod)),
                remedy=f"is the plugin of {fact.node} running? If the pod cannot start, delete it",
                seq=held.seq,
            )


def _of_unserved(state: ClusterState) -> Iterator[Finding]:
    """What pods that wait ask for and nobody offers, each once with one of the pods."""
    pods: dict[str, list[PodObserved]] = {}
    known: dict[PodRequest, tuple[str, ...]] = {}
    for uid in state.pending:
        fact = state.pods[uid].fact
        if fact.problem is not None:
            continue
        asked = PodRequest(extended=fact.request.extended, devices=fact.request.devices)
        if asked not in known:
            known[asked] = unserved(state, asked)
        for text in known[asked]:
            pods.setdefault(text, []).append(fact)
    for text, waiting in pods.items():
        first = min(waiting, key=lambda fact: (fact.namespace, fact.name))
        more = f" and {len(waiting) - 1} more" if len(waiting) > 1 else ""
        yield Finding(
            severity=WARNING,
            code="NotOffered",
            subject=f"pod {first.namespace}/{first.name}{more}",
            message=text,
            remedy="as said, or change the pod",
        )


def _kept_waiting(pods: list[Pod]) -> str:
    """Who waits with the same question to the plugin, the first of them by name."""
    if not pods:
        return ""
    names = [f"{pod.fact.namespace}/{pod.fact.name}" for pod in pods[:WAITING_SHOWN]]
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
                remedy="it counts as not given; mend the PodGroup or Job",
            )
    for queue in state.queues.values():
        if queue.problem is not None:
            yield Finding(
                severity=WARNING,
                code=queue.problem.code,
                subject=f"queue {queue.name}",
                message=f"{queue.problem.place} {queue.problem.message}",
                remedy="it counts as not given; mend the Queue",
            )


def _of_quotas(state: ClusterState) -> Iterator[Finding]:
    """Queues whose quota pods wait for, and who has it."""
    if not state.is_batched:
        return
    for name, wait in quota_waits(state).items():
        jobs, has = wait
        idle = sum(1 for holder in has if not holder.pods)
        shown = [_holder_text(holder) for holder in has[:HOLDERS_SHOWN]]
        shown += [f"{len(has) - len(shown)} more"] if len(has) > len(shown) else []
        more = f" and {len(jobs) - 1} more wait" if len(jobs) > 1 else " waits"
        said = f"; {idle} of them without any pod that has a place" if idle else ""
        yield Finding(
            severity=WARNING,
            code=QUEUE_QUOTA,
            subject=f"queue {name}",
            message=f"{jobs[0]}{more} for its quota"
            + (f", which is held by {', '.join(shown)}{said}" if has else f"; {NOBODY_HAS_IT}"),
            remedy=f"raise the queue's quota, or {'end what it holds' if has else 'ask for less'}: "
            f"allot explain queue {name}",
        )


def _holder_text(holder: Holder) -> str:
    name = f"{'pod ' * holder.is_pod}{holder.namespace}/{holder.name}"
    if not holder.pods:
        return f"{name} (promised, no pods)"
    return f"{name} ({holder.pods} pod{'s' * (holder.pods > 1)})"
