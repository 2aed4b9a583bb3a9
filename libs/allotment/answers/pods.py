"""A pod's answers: why it is where it is or waits, and its life."""

import msgspec

from allotment.adapters.service.moments import At, AtSequence
from allotment.answers.folding import Folded, Foreseer, Observer, dated, fold, fold_at
from allotment.answers.names import near, no_such_node
from allotment.answers.source import Source
from allotment.core.errors import AllotError
from allotment.core.explain.doctor import SCHEDULING, of_leases
from allotment.core.explain.life import Life, PodExplanation
from allotment.core.explain.pod import explain as explain_pod
from allotment.core.explain.pod import with_services
from allotment.core.explain.pod_story import PodLife, PodStory
from allotment.core.explain.timeline import life_of, neighbours
from allotment.core.ledger import snapshot
from allotment.core.ledger.model import ClusterState
from allotment.core.logport import Record
from allotment.core.reasons import QUEUED
from allotment_proto import subjects
from allotment_proto.codec import UndecodableError, decode_envelope
from allotment_proto.events import Decided, Envelope


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

    For a placed pod the log is read again up to what its decision read.
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
        self._bases = _Bases(story)
        self.observe, self.foresee = _following(story), self._bases.foresee
        self._source = source
        self._node = node
        self._previous = previous
        self._is_now = False

    async def folded(self, moment: str | At | None) -> Folded:
        """Fold to a moment, following the story. Raises `AllotError` if no pod had the name."""
        self._is_now = moment is None
        return await _followed(self._source, self._story, moment, self.foresee)

    async def explained(self, folded: Folded, *, advised: bool = True) -> PodExplanation:
        """The explanation at the end of a fold through which the story was followed."""
        source, story, node, state = self._source, self._story, self._node, folded.state
        if node is not None and node not in state.nodes:
            raise no_such_node(node, state.nodes, folded.seq)
        told = _told_of(story, folded, self._previous)
        placed = told.placed
        before = None if placed is None else await self._bases.state(source, placed.decided.basis)
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
            found = with_services(found, of_leases(await source.active(SCHEDULING) or {}))
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


async def _followed(
    source: Source, story: PodStory, moment: str | At | None, foreseer: Foreseer | None = None
) -> Folded:
    """The fold that a story was followed through. Raises `AllotError` if no pod had its name."""
    folded = await fold_at(source, moment, _following(story), foreseer=foreseer)
    if story.latest is None:
        raise AllotError(
            f"pod {story.namespace}/{story.name} is not in the log up to seq {folded.seq}",
            _similar(folded, story.namespace, story.name),
        )
    return folded


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
    """The life of the pod of the same owner whose place a pod took; read again for it alone."""
    kin = story.before.get(told.uid)
    if kin is None:
        return None
    other = PodStory(kin.namespace, kin.name)
    await fold(source, AtSequence(folded.seq), _following(other))
    return other.lives.get(kin.uid)


def _following(story: PodStory) -> Observer:
    def observe(record: Record, envelope: Envelope, state: ClusterState) -> None:
        story.follow(record.seq, record.time_ns // 1_000_000, envelope, state)

    return observe


class _Bases:
    """The state that the decision about a pod's place read, kept on the way where it is the one
    right before the decision: then the log need not be read a second time.
    """

    def __init__(self, story: PodStory) -> None:
        self._story = story
        self._seq = 0
        self._image = b""

    def foresee(self, record: Record, state: ClusterState) -> None:
        """Before a record takes effect."""
        if record.subject != subjects.DECISION:
            return
        latest = self._story.latest
        if latest is None or latest.uid.encode() not in record.payload:
            return
        for event in _decisions(record):
            if not any(placement.uid == latest.uid for placement in event.placements):
                continue
            if event.basis == state.seq:
                self._seq, self._image = state.seq, snapshot.encode(state)

    async def state(self, source: Source, basis: int) -> ClusterState:
        if self._image and self._seq == basis:
            return snapshot.decode(self._image)
        return (await fold(source, AtSequence(basis))).state


def _decisions(record: Record) -> list[Decided]:
    try:
        events = decode_envelope(record.payload, record.subject).events
    except UndecodableError:
        return []
    return [event for event in events if isinstance(event, Decided)]


def _similar(folded: Folded, namespace: str, name: str) -> str:
    known = [f"{p.fact.namespace}/{p.fact.name}" for p in folded.state.pods.values()]
    close = near(namespace, name, known)
    return f"did you mean {close}?" if close else "see: allot get pods -A"
