"""A pod's answers: why it is where it is or waits, and its life."""

from bisect import bisect_right
from collections.abc import Collection, Sequence
from functools import partial

import anyio.from_thread
import anyio.to_thread
import msgspec

from allotment.adapters.log.kept import KeptLog
from allotment.adapters.service.moments import At, AtSequence
from allotment.answers.folding import Folded, Observer, dated, fold, fold_at
from allotment.answers.names import near, no_such_node
from allotment.answers.source import Source
from allotment.core.errors import AllotError
from allotment.core.explain.doctor import SCHEDULING, of_leases
from allotment.core.explain.history.concerned import (
    GROUP,
    LOST,
    NODE,
    POD,
    GroupSubject,
    NodeSubject,
    PodSubject,
    Subject,
    Thing,
    around,
    family_of,
    members_of,
    place_of,
)
from allotment.core.explain.history.pod_story import LIVES_KEPT, PodLife, PodStory
from allotment.core.explain.history.timeline import life_of, neighbours
from allotment.core.explain.pod import explain as explain_pod
from allotment.core.explain.pod import with_services
from allotment.core.explain.rows.life import Life, PodExplanation
from allotment.core.ledger.model import ClusterState
from allotment.core.logport import Record
from allotment.core.reasons import QUEUED
from allotment_proto.codec import UndecodableError, decode_envelope
from allotment_proto.events import Decided, Envelope, Event, PodObserved


async def explain(
    source: Source,
    namespace: str,
    name: str,
    moment: str | At | None = None,
    *,
    node: str | None = None,
    previous: bool = False,
) -> PodExplanation:
    """Explain the latest pod of a name at a moment (None: now), or the `previous` one; with `node`
    every step for the cards of that node. Raises `AllotError` if there is none.
    """
    asked = Asked(source, namespace, name, node, previous)
    return await asked.explained(await asked.folded(moment))


class Asked:
    """What is asked about a pod whose story is followed."""

    def __init__(
        self,
        source: Source,
        namespace: str,
        name: str,
        node: str | None = None,
        previous: bool = False,
    ) -> None:
        self._story = story = PodStory(namespace, name)
        self.observe = _following(story)
        self._before: Folded | None = None
        """What the decision about its place read."""
        self._source = source
        self._node = node
        self._previous = previous
        self._is_now = False

    async def folded(self, moment: str | At | None) -> Folded:
        """Fold to a moment and follow the story to it. Raises `AllotError` without such a pod."""
        self._is_now = moment is None
        return await _followed(self._source, self._story, moment)

    async def explained(self, folded: Folded, *, advised: bool = True) -> PodExplanation:
        """The explanation at the end of a fold through which the story was followed."""
        source, story, node, state = self._source, self._story, self._node, folded.state
        if node is not None and node not in state.nodes:
            raise no_such_node(node, state.nodes, folded.seq)
        told = _told_of(story, folded, self._previous)
        basis = None if told.placed is None else told.placed.decided.basis
        if basis is not None and (self._before is None or self._before.seq != basis):
            self._before = await fold(source, AtSequence(basis))
        before = None if basis is None or self._before is None else self._before.state
        kin = await _kin_of(source, story, told, folded)
        with source.screen.waiting("trying what would make it fit"):
            found = explain_pod(
                state,
                story,
                folded.time_ms,
                before=before,
                node=node,
                kin=kin,
                told=told,
                advised=advised,
            )
        if self._is_now and found.status.cause == QUEUED:
            active = await source.active(SCHEDULING) or {}
            found = with_services(found, of_leases(active, state.policy.scheduler_names))
        problems = await dated(source, found.problems, folded.seq)
        return msgspec.structs.replace(found, problems=tuple(problems))


async def life(
    source: Source,
    namespace: str,
    name: str,
    moment: str | At | None = None,
    *,
    previous: bool = False,
    asks_nodes: bool = True,
) -> Life:
    """The life of the latest pod of a name at a moment (None: now), or of the `previous` one;
    `asks_nodes` as in `PodLife`. Raises `AllotError` if there is none.
    """
    story = PodStory(namespace, name, asks_nodes=asks_nodes)
    folded = await _followed(source, story, moment)
    told = _told_of(story, folded, previous)
    kin = await _kin_of(source, story, told, folded)
    before, after = neighbours(folded.state, story, told, kin)
    return life_of(folded.state, told, folded.time_ms, predecessor=before, successor=after)


async def _followed(source: Source, story: PodStory, moment: str | At | None) -> Folded:
    """The state at a moment, to which a story was followed. Raises `AllotError` if no pod had its
    name.
    """
    await source.kept.ask_archive()
    folded = await fold_at(source, moment)
    await _follow(source, story, folded.seq)
    if story.latest is None and source.kept.lacks:
        raise AllotError(
            f"pod {story.namespace}/{story.name} is not in the records that can be read up to seq"
            f" {folded.seq}: {source.kept.lacks}",
            "make the archive reachable, or name a copy: --archive URL (or ALLOT_ARCHIVE)",
        )
    if story.latest is None:
        raise AllotError(
            f"pod {story.namespace}/{story.name} is not in the log up to seq {folded.seq}",
            _similar(folded, story.namespace, story.name),
        )
    return folded


async def _follow(source: Source, story: PodStory, last_seq: int) -> None:
    """Follow a story to a record that the log has."""
    records = await records_of(source, story.namespace, story.name, last_seq, is_story=True)
    then = _Then(source)

    def follow() -> None:
        for record in records:
            try:
                envelope = decode_envelope(record.payload, record.subject)
            except UndecodableError:
                continue
            at = partial(then.state, record.seq)
            story.follow(record.seq, record.time_ns // 1_000_000, envelope, at)

    await anyio.to_thread.run_sync(follow)


class _Then:
    """States of the past, each from the one before or from the nearest that is kept."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._folded: Folded | None = None

    def state(self, seq: int) -> ClusterState:
        """The state after a record, to be asked for in order, in a worker thread."""
        if self._folded is None or self._folded.seq != seq:
            self._folded = anyio.from_thread.run(self._bring, seq)
        return self._folded.state

    async def _bring(self, seq: int) -> Folded:
        return await fold(self._source, AtSequence(seq), after=self._folded)


async def records_of(
    source: Source, namespace: str, name: str, last_seq: int, *, is_story: bool = False
) -> list[Record]:
    """The records of a log, up to one that it has, that belong to the pods of a name: about them,
    their groups, pods that they displace or make room for, and nodes of theirs that went. For a
    story the newest pods are enough, with the pods whose place they took, or that took theirs.
    """
    kept = source.kept
    uids = await kept.uids_of(f"{namespace}/{name}", last_seq)
    known = await kept.about([(POD, uid) for uid in uids], last_seq)
    if is_story:
        known = dict([each for each in known.items() if each[1]][-LIVES_KEPT:])
    events: list[Event] = []
    while True:
        records = await kept.records(seq for seqs in known.values() for seq in seqs)
        events = [event for record in records for event in _events_of(record)]
        new = around(namespace, name, events).difference(known)
        if not new:
            break
        known.update(await _about(kept, new, last_seq))
    if is_story:
        own = {uid for kind, uid in known if kind == POD} & set(uids)
        families = {family_of(e) for e in events if isinstance(e, PodObserved) and e.uid in own}
        kin = [u for each in families - {""} for u in await kept.uids_of(each, last_seq)]
        known.update(await kept.about([(POD, uid) for uid in kin], last_seq))
    return await kept.records(seq for seqs in known.values() for seq in seqs)


async def records_about(source: Source, subject: Subject, last_seq: int) -> list[Record] | None:
    """The records of a log, up to one that it has, that a subject's story needs; None: all."""
    kept = source.kept
    match subject:
        case PodSubject():
            return await records_of(source, subject.namespace, subject.name, last_seq)
        case GroupSubject():
            own, name = (GROUP, subject.key), members_of(subject.key)
        case NodeSubject():
            own, name = (NODE, subject.node), place_of(subject.node)
        case _:
            return None
    seqs = set((await kept.about([own], last_seq))[own])
    pods = set(await kept.uids_of(name, last_seq))
    if isinstance(subject, GroupSubject):
        decided = [event for r in await kept.records(seqs) for event in _events_of(r)]
        evictions = [e for event in decided if isinstance(event, Decided) for e in event.evictions]
        pods.update(each.uid for each in evictions if each.preemptor == subject.key)
    theirs = await kept.about([(POD, uid) for uid in pods], last_seq)
    return await kept.records(seqs.union(*theirs.values()))


async def _about(kept: KeptLog, things: Collection[Thing], last_seq: int) -> dict[Thing, list[int]]:
    """The records about some things; of a node that went, with the first ones of its return."""
    found = await kept.about(things, last_seq)
    went = {name: seqs for (kind, name), seqs in found.items() if kind == LOST and seqs}
    if went:
        nodes = await kept.about([(NODE, name) for name in went], last_seq)
        for (_, name), seqs in nodes.items():
            back = (bisect_right(seqs, seq) for seq in went[name])
            found[LOST, name] += [seqs[at] for at in back if at < len(seqs)]
    return found


def _events_of(record: Record) -> Sequence[Event]:
    try:
        return decode_envelope(record.payload, record.subject).events
    except UndecodableError:
        return ()


def _told_of(story: PodStory, folded: Folded, previous: bool) -> PodLife:
    """The latest pod of a story that was followed, or the one before it. Raises `AllotError`."""
    lives = list(story.lives.values())
    if previous and len(lives) < 2:
        raise AllotError(
            f"no other pod had the name {story.namespace}/{story.name} up to seq {folded.seq}",
            "leave out --previous",
        )
    return lives[-2 if previous else -1]


async def _kin_of(source: Source, story: PodStory, told: PodLife, folded: Folded) -> PodLife | None:
    """The life of the pod of the same owner whose place a pod took."""
    kin = story.before.get(told.uid)
    if kin is None:
        return None
    other = PodStory(kin.namespace, kin.name)
    await _follow(source, other, folded.seq)
    return other.lives.get(kin.uid)


def _following(story: PodStory) -> Observer:
    def observe(record: Record, envelope: Envelope, state: ClusterState) -> None:
        story.follow(record.seq, record.time_ns // 1_000_000, envelope, lambda: state)

    return observe


def _similar(folded: Folded, namespace: str, name: str) -> str:
    known = [f"{p.fact.namespace}/{p.fact.name}" for p in folded.state.pods.values()]
    close = near(namespace, name, known)
    if close:
        return f"did you mean {close}?"
    return "see: allot get pods -A. If kubectl shows the pod, ask: allot doctor"
