"""A pod's story out of the log: the records that belong to it, each with the state that it made.

A story follows every record (`PodStory`); here it is given only those that can say something about
the pods of one name, so that a pod's story in a long log is as fast as in a short one.
"""

from collections.abc import Sequence
from functools import partial
from heapq import merge
from itertools import islice
from typing import NamedTuple

import msgspec

from allotment.core.explain.history.concerned import LOST, NODE, POD, Thing, around, family_of
from allotment.core.explain.history.pod_story import PodLife, PodStory
from allotment.core.explain.history.timeline import life_of, neighbours
from allotment.core.explain.pod import explain, with_services
from allotment.core.explain.rows.life import Life, PodExplanation
from allotment.core.ledger.model import ClusterState
from allotment_inspector.history import Entry, Moment
from allotment_proto.events import Envelope, PodObserved

_KIN_MAX = 200
"""Of so many pods of an owner, predecessors and successors are looked for."""


class Told(NamedTuple):
    """A pod and its story; `uids` are those of all pods that had the name, up to the moment."""

    uid: str
    uids: tuple[str, ...]
    life: Life
    explanation: PodExplanation | None
    """None of a pod whose name another one has by now."""


def tell(moment: Moment, namespace: str, name: str, uid: str = "") -> Told | None:
    """The story of the newest pod of a name at that moment, or of the one with this uid.

    None if the log knows no such pod up to there.
    """
    uids = moment.pods_named(namespace, name)
    if not uids or (uid and uid not in uids):
        return None
    wanted = uid or uids[-1]
    place = uids.index(wanted)
    story = _followed(moment, namespace, name, uids[max(place - 1, 0) : place + 2])
    told = story.lives.get(wanted)
    if told is None:
        return None
    kin = _life_of_kin(moment, story, told)
    if wanted == uids[-1]:
        found = _explained(moment, story, told, kin)
        assert found.life is not None
        return Told(wanted, uids, found.life, found)
    earlier, later = neighbours(moment.state, story, told, kin)
    life = life_of(moment.state, told, moment.now_ms, predecessor=earlier, successor=later)
    return Told(wanted, uids, life, None)


def _explained(
    moment: Moment, story: PodStory, told: PodLife, kin: PodLife | None
) -> PodExplanation:
    """The explanation of the newest pod. Why it got its place stays as it was decided, so that is
    worked out once; all else is asked of the state.
    """
    now_ms, placed = moment.now_ms, told.placed
    if placed is None:
        found = explain(moment.state, story, now_ms, kin=kin, advised=False)
        return with_services(found, moment.idle)

    def ranked() -> PodExplanation:
        before = next((state for _, state in moment.states((placed.decided.basis,))), None)
        return explain(moment.state, story, now_ms, before=before, advised=False)

    known = moment.memo.get(("ranked", told.uid, placed.seq), ranked)
    found = explain(moment.state, story, now_ms, kin=kin, advised=False)
    return msgspec.structs.replace(
        found,
        funnel=known.funnel,
        candidates=known.candidates,
        candidates_total=known.candidates_total,
        decided_by=known.decided_by,
        decision=known.decision,
    )


def _followed(moment: Moment, namespace: str, name: str, uids: Sequence[str]) -> PodStory:
    """The story of these pods of a name, up to the moment. While no record that belongs to it comes
    it is the same one: look at it, never follow it on.
    """
    own = sorted(records_of(moment, namespace, name, uids))
    kin = sorted(_kin_seqs(moment, uids).difference(own))

    def follow() -> PodStory:
        story = PodStory(namespace, name)
        state = moment.state
        steps = merge(
            ((entry.seq, entry, found) for entry, found in moment.states(own)),
            ((entry.seq, entry, None) for entry in moment.records(kin)),
            key=lambda step: step[0],
        )
        for seq, entry, found in steps:
            state = state if found is None else found
            story.follow(seq, entry.time_ms, _envelope(entry), partial(_same, state))
        return story

    return moment.memo.get(("story", namespace, name, *uids, "", *own, 0, *kin), follow)


def _same(state: ClusterState) -> ClusterState:
    return state


def _envelope(entry: Entry) -> Envelope:
    return Envelope(v=0, at_ms=entry.time_ms, by=entry.by, events=entry.events)


def records_of(moment: Moment, namespace: str, name: str, uids: Sequence[str]) -> set[int]:
    """The records that can say something about these pods of a name: about them, about their group,
    about whom they displace or make room for, and about nodes of theirs that went.
    """
    found = {seq for uid in uids for seq in moment.seqs(POD, uid)}

    def look() -> frozenset[Thing]:
        own = moment.records(sorted(found))
        return around(namespace, name, (event for entry in own for event in entry.events))

    for kind, thing in moment.memo.get(("around", *uids, len(found), max(found, default=0)), look):
        seqs = moment.seqs(kind, thing)
        found.update(seqs)
        if kind == LOST and seqs:
            found.update(seq for seq in moment.seqs(NODE, thing) if seq > seqs[0])
    return found


def _kin_seqs(moment: Moment, uids: Sequence[str]) -> set[int]:
    """How the pods of the same owners were seen whose names are generated alike."""
    seen = moment.records([seq for uid in uids for seq in moment.seqs(POD, uid)[:1]])
    families = {
        family_of(event)
        for entry in seen
        for event in entry.events
        if isinstance(event, PodObserved) and event.uid in uids
    }
    kin = (uid for each in families - {""} for uid in moment.family(each))
    return {seq for uid in islice(kin, _KIN_MAX) for seq in moment.seqs(POD, uid)}


def _life_of_kin(moment: Moment, story: PodStory, told: PodLife) -> PodLife | None:
    """The life of the pod of the same owner whose place this one took."""
    kin = story.before.get(told.uid)
    if kin is None:
        return None
    return _followed(moment, kin.namespace, kin.name, (kin.uid,)).lives.get(kin.uid)
