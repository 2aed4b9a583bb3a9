"""One decision: what it said of each pod, why the winner won, how long it took, what came of it."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

import msgspec

from allotment.core.explain.causes.competition import competition, decided_by
from allotment.core.explain.history.concerned import POD
from allotment.core.explain.history.records import Effects, stood_on
from allotment.core.explain.rows.schema import Candidate
from allotment.core.explain.rows.views import device_name, plain
from allotment.core.explain.rows.words import decided_by_text
from allotment.core.ledger.model import SINGLE, ClusterState
from allotment.core.reasons import REASONS, refusal_text
from allotment_inspector.history import Entry, Moment
from allotment_inspector.index import EVICTED, REFUSED
from allotment_inspector.pages.parts.asked import natural
from allotment_inspector.pages.parts.found import Near, NotFound, no_record
from allotment_inspector.said import Bit, Fact, group_link, node_link, path, pod_link, said, typed
from allotment_inspector.waterfall import STAGES
from allotment_proto.events import Decided, Envelope, Placement

_ROWS_SHOWN = 300
_EFFECTS_SHOWN = 40
_RECORDS_LOOKED_AT = 200


class Outcome(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What the decision said of one pod or group. `kind` is ``placed``, ``void``, ``dropped``,
    ``refused``, ``evicted``, ``nominated``, ``short``, ``held`` or ``admitted``.
    """

    kind: str
    word: str
    who: Bit
    where: Bit | None = None
    why: tuple[Bit, ...] = ()
    uid: str = ""


class Score(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A node that would have taken the pod. `behind` is the distance from the winner, in
    micro-points, as is the rest.
    """

    rank: int
    node: str
    cards: str
    free_before_bytes: int
    free_after_bytes: int
    terms: dict[str, int]
    total: int
    behind: int
    is_chosen: bool


class ScoreTable(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Why one pod of the decision was put where it was. `scores` are made again on the state that
    was read; `total`, `where` and `recorded` (nodes that came next, with their totals) are of the
    record itself.
    """

    pod: Bit
    key: str
    uid: str
    nodes: int
    feasible: int
    why: str
    terms: tuple[str, ...]
    scores: tuple[Score, ...]
    total: int
    where: Bit
    recorded: tuple[tuple[str, int], ...]


class Lost(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How many nodes lacked one thing, in the words of its reason."""

    code: str
    text: str
    nodes: int


class Refused(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Why nodes were rejected of a pod that fits nowhere."""

    pod: Bit
    nodes: int
    lost: tuple[Lost, ...]


class Work(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A service's part in the decision; `x` and `w` in ten-thousandths of the whole."""

    label: str
    instance: str
    x: int
    w: int
    took_us: int


class Led(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A record before or after that belongs to the decision."""

    relation: str
    seq: int
    time_ms: int | None
    text: str


class DecisionPage(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """All that the page shows. `counts` is by kind of outcome, `look` how its mark looks."""

    seq: int
    time_ms: int
    cycle: str
    counts: dict[str, int]
    look: str
    sentence: tuple[Bit, ...]
    facts: tuple[Fact, ...]
    outcomes: tuple[Outcome, ...]
    more: int
    score: ScoreTable | None
    refused: tuple[Refused, ...]
    work: tuple[Work, ...]
    took_us: int
    before_and_after: tuple[Led, ...] = ()
    earlier: int = 0
    later: int = 0


def view(
    moment: Moment, match: Mapping[str, str], query: Mapping[str, str]
) -> DecisionPage | NotFound:
    """The decision of a record; `pod` (a uid) says whose scores are shown."""
    found = decided_at(moment, match["seq"])
    if found is None:
        return no_decision(moment, match["seq"])
    entry, event = found
    pod = query.get("pod", "")
    uid = pod if any(placement.uid == pod for placement in event.placements) else ""
    page = moment.memo.get(
        ("decision", entry.seq, uid), lambda: _as_decided(moment, entry, event, uid)
    )
    earlier, later = _neighbours(moment, entry.seq)
    return msgspec.structs.replace(
        page,
        before_and_after=tuple(_related(moment, entry, event)),
        earlier=earlier,
        later=later,
    )


def _as_decided(moment: Moment, entry: Entry, event: Decided, uid: str) -> DecisionPage:
    """What no later record changes."""
    state = next((state for _, state in moment.states((entry.seq,))), moment.state)
    outcomes = tuple(_outcomes(event, entry.seq, state))
    counts: dict[str, int] = {}
    for outcome in outcomes:
        counts[outcome.word] = counts.get(outcome.word, 0) + 1
    return DecisionPage(
        seq=entry.seq,
        time_ms=entry.time_ms,
        cycle=event.cycle,
        counts=counts,
        look="fail" if event.evictions else "wait" if event.refusals or event.shorts else "",
        sentence=tuple(_sentence(event, outcomes)),
        facts=tuple(_facts(entry, event, state)),
        outcomes=outcomes[:_ROWS_SHOWN],
        more=max(len(outcomes) - _ROWS_SHOWN, 0),
        score=_score_table(moment, entry, event, uid, state),
        refused=tuple(_refused(event)),
        work=tuple(_work(event)),
        took_us=_took_us(event),
    )


def command(moment: Moment, match: Mapping[str, str], query: Mapping[str, str]) -> str:
    """What to type for the record."""
    return typed("allot", "log", "show", match["seq"])


def decided_at(moment: Moment, digits: str) -> tuple[Entry, Decided] | None:
    """The decision of a record, None if it holds none, or is later than the moment."""
    seq = natural(digits)
    entry = None if seq is None else moment.entry(seq)
    events = () if entry is None else entry.events
    decided = next((event for event in events if isinstance(event, Decided)), None)
    return None if entry is None or decided is None else (entry, decided)


def no_decision(moment: Moment, digits: str) -> NotFound:
    """That the record holds no decision, and which marked ones are near."""
    near = (seq for seq in _neighbours(moment, natural(digits) or 0) if seq)
    shown = tuple(Near(f"decision {seq}", path("decisions", str(seq))) for seq in near)
    return no_record(moment, "decision", digits, shown)


def _neighbours(moment: Moment, seq: int) -> tuple[int, int]:
    """The decisions that stand out before and after, 0 for none."""
    before = after = 0
    for mark in moment.marks():
        if mark.kind not in (REFUSED, EVICTED):
            continue
        if mark.seq < seq:
            before = mark.seq
        elif mark.seq > seq:
            after = mark.seq
            break
    return before, after


def _outcomes(event: Decided, seq: int, state: ClusterState) -> Iterator[Outcome]:
    """Evictions and refusals first: they are what people look for."""
    for eviction in event.evictions:
        yield Outcome(
            kind="evicted",
            word="evicted",
            who=pod_link(eviction.namespace, eviction.name, eviction.uid),
            where=node_link(eviction.node),
            why=said(f"to {eviction.action} for ", _preemptor(event, eviction.preemptor)),
            uid=eviction.uid,
        )
    for nomination in event.nominations:
        yield Outcome(
            kind="nominated",
            word="nominated",
            who=pod_link(nomination.namespace, nomination.name, nomination.uid),
            where=node_link(nomination.node),
            why=said("the node is reserved for it until the evicted pods are gone"),
            uid=nomination.uid,
        )
    for refusal in event.refusals:
        yield Outcome(
            kind="refused",
            word="rejected",
            who=pod_link(refusal.namespace, refusal.name, refusal.uid),
            why=said(refusal_text(refusal)),
            uid=refusal.uid,
        )
    for short in event.shorts:
        yield Outcome(
            kind="short",
            word="short",
            who=group_link(short.group),
            why=said(f"{short.code}: {short.message}"),
        )
    for admission in event.admissions:
        yield Outcome(
            kind="held" if admission.code else "admitted",
            word="not admitted" if admission.code else "admitted",
            who=group_link(admission.group),
            why=said(f"{admission.code}: {admission.message}") if admission.code else (),
        )
    for dropped in event.dropped:
        placement = dropped.placement
        yield Outcome(
            kind="dropped",
            word="dropped",
            who=pod_link(placement.namespace, placement.name, placement.uid),
            where=node_link(placement.node),
            why=said(f"{dropped.code}: it no longer fit when it was checked again"),
            uid=placement.uid,
        )
    for placement in event.placements:
        is_void = state.voided.get(placement.uid) == seq
        yield Outcome(
            kind="void" if is_void else "placed",
            word="void" if is_void else "placed",
            who=pod_link(placement.namespace, placement.name, placement.uid),
            where=node_link(placement.node, _cards(state, placement)),
            why=said("another record took the room first")
            if is_void
            else said(f"best of {placement.feasible} that fit, of {placement.nodes} nodes"),
            uid=placement.uid,
        )


def _preemptor(event: Decided, preemptor: str) -> Bit:
    if not preemptor.startswith(SINGLE):
        return group_link(preemptor)
    uid = preemptor.removeprefix(SINGLE)
    named = (n for n in event.nominations if n.uid == uid)
    return next((pod_link(n.namespace, n.name, n.uid) for n in named), Bit(text=preemptor))


def _cards(state: ClusterState, placement: Placement) -> str:
    node = state.nodes.get(placement.node)
    names = [device_name(node, holding) for holding in placement.holdings]
    names = names or [f"{name} {count}" for name, count in plain(placement.extended).items()]
    return f"{placement.node}/{', '.join(names)}" if names else placement.node


def _sentence(event: Decided, outcomes: Sequence[Outcome]) -> Iterator[Bit]:
    """The first of each kind by name, the others counted."""
    verbs = {
        "evicted": "evicts",
        "refused": "rejects",
        "short": "keeps waiting",
        "held": "does not admit",
        "admitted": "admits",
        "dropped": "drops",
        "void": "fails to place",
        "placed": "places",
    }
    said_any = False
    for kind, verb in verbs.items():
        of_kind = [outcome for outcome in outcomes if outcome.kind == kind]
        if not of_kind:
            continue
        yield Bit(text=f", {verb} " if said_any else f"{verb[:1].upper()}{verb[1:]} ")
        yield of_kind[0].who
        if len(of_kind) > 1:
            yield Bit(text=f" and {len(of_kind) - 1:,} more")
        if kind == "placed" and of_kind[0].where is not None and len(of_kind) == 1:
            yield from said(" on ", of_kind[0].where)
        if kind == "evicted":
            yield from said(" ", *of_kind[0].why)
        said_any = True
    repeated = len(event.batch)
    pods = f"{repeated:,} pod{'s' * (repeated != 1)}"
    yield Bit(text="." if said_any else f"Checked {pods} again, with the same results.")


def _facts(entry: Entry, event: Decided, state: ClusterState) -> Iterator[Fact]:
    policy = state.policy
    yield Fact(
        label="Record", bits=said(Bit(text=str(entry.seq), path=path("log", str(entry.seq))))
    )
    yield Fact(label="Considered", bits=said(f"{len(event.batch):,} waiting pods"))
    yield Fact(label="Based on", bits=said(f"the state at record {event.basis}"))
    same = ", unchanged" if event.checked == event.basis else ""
    yield Fact(label="Checked", bits=said(f"on record {event.checked}{same}"))
    name = policy.device_policy
    hosts = "" if policy.host_policy == name else f", hosts {policy.host_policy}"
    yield Fact(label="Policy", bits=said(f"{name}{hosts}, of record {event.policy}"))
    yield Fact(label="Actions", bits=said(", ".join(policy.actions)))
    yield Fact(label="Decided by", bits=said(entry.by))
    yield Fact(label="Cycle", bits=said(event.cycle), is_id=True)


def _score_table(
    moment: Moment, entry: Entry, event: Decided, uid: str, state: ClusterState
) -> ScoreTable | None:
    """Why one pod was put where it was: the one asked for, else the first. The ranking is made
    again on the state that the decision read; what it does not show is in the record.
    """
    found = [placement for placement in event.placements if not uid or placement.uid == uid]
    if not found:
        return None
    placement = found[0]
    before = next((before for _, before in moment.states((event.basis,))), None)
    pod = None if before is None else before.pods.get(placement.uid)
    scores: tuple[Score, ...] = ()
    why = ""
    if before is not None and pod is not None:
        _, ranked, _ = competition(before, event, pod.fact, placement.node)
        by = decided_by(ranked)
        why = "" if by is None else decided_by_text(by)
        scores = tuple(_score(each, ranked[0].total_micro) for each in ranked)
    return ScoreTable(
        pod=pod_link(placement.namespace, placement.name, placement.uid),
        key=f"{placement.namespace}/{placement.name}",
        uid=placement.uid,
        nodes=placement.nodes,
        feasible=placement.feasible,
        why=why,
        terms=tuple(dict.fromkeys(term for score in scores for term in score.terms)),
        scores=scores,
        total=placement.score_micro,
        where=node_link(placement.node, _cards(state, placement)),
        recorded=tuple((each.node, each.score_micro) for each in placement.runners_up),
    )


def _score(found: Candidate, best: int) -> Score:
    return Score(
        rank=found.rank,
        node=found.node,
        cards=", ".join(found.devices),
        free_before_bytes=found.free_before_bytes,
        free_after_bytes=found.free_after_bytes,
        terms=found.terms,
        total=found.total_micro,
        behind=best - found.total_micro,
        is_chosen=found.chosen,
    )


def _refused(event: Decided) -> Iterator[Refused]:
    for refusal in islice((r for r in event.refusals if r.reasons), 4):
        yield Refused(
            pod=pod_link(refusal.namespace, refusal.name, refusal.uid),
            nodes=refusal.nodes,
            lost=tuple(
                Lost(code=code, text=REASONS[code].text if code in REASONS else "", nodes=count)
                for code, count in refusal.reasons
            ),
        )


def _took_us(event: Decided) -> int:
    begun = min((stage.received_us for stage in event.stages), default=0)
    return max((stage.finished_us for stage in event.stages), default=0) - begun


def _work(event: Decided) -> Iterator[Work]:
    """When each service worked, by its own clock."""
    begun = min((stage.received_us for stage in event.stages), default=0)
    whole = max(_took_us(event), 1)
    for stage in event.stages:
        x = (stage.received_us - begun) * 10_000 // whole
        w = (stage.finished_us - stage.received_us) * 10_000 // whole
        yield Work(
            label=f"{stage.stage} {STAGES.get(stage.stage, '')}".strip(),
            instance=stage.instance,
            x=min(max(x, 0), 10_000),
            w=min(max(w, 0), 10_000),
            took_us=max(stage.finished_us - stage.received_us, 0),
        )


def _related(moment: Moment, entry: Entry, event: Decided) -> Iterator[Led]:
    """What it stood on, and what it led to up to the moment."""
    envelope = Envelope(v=0, at_ms=entry.time_ms, by=entry.by, events=entry.events)
    for text in stood_on(envelope):
        yield Led(
            relation="based on", seq=event.basis, time_ms=moment.ms_of(event.basis), text=text
        )
    moment.needs(entry.seq)
    uids = {placement.uid for placement in event.placements}
    uids |= {eviction.uid for eviction in event.evictions}
    uids |= {nomination.uid for nomination in event.nominations}
    later = sorted({seq for uid in uids for seq in moment.seqs(POD, uid) if seq > entry.seq})
    effects = Effects(entry.seq, [event])
    found = (
        (each, effect)
        for each in moment.records(later[:_RECORDS_LOOKED_AT])
        for effect in effects.of(
            each.seq, Envelope(v=0, at_ms=each.time_ms, by=each.by, events=each.events)
        )
    )
    for each, effect in islice(found, _EFFECTS_SHOWN):
        yield Led(relation="led to", seq=each.seq, time_ms=each.time_ms, text=effect.text)
