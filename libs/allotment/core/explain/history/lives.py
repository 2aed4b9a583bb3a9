"""The lives of all pods that are not over, for the export of their traces.

A `PodStory` reads every record for one name. Here each record goes only to the lives that it is
about, found by uid, node or group, so that the cost of following a cluster depends on its records
alone.

What of a pod's trace is final is given out in parts, each span once: when the pod begins to run,
when it is over (then with the span that covers its life), and while it waits or is being bound each
time that something final was not given for a while. Everything that was final up to a record
(`since_seq`) counts as given out already: this is how a follower continues after a restart.

A pod that runs costs little memory: the decisions about it are dropped with the part in which they
were given out; of a pod outside the sample, which may still end badly, only what they say of other
pods is dropped. At most `limit` lives are followed. Beyond that, the pods outside the sample that
run longest are dropped first; further pods are left out. Each pod that is left out is counted once,
and no pod is ever followed from the middle of its life.
"""

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import NamedTuple

from allotment.core.explain.history.attempts import PLACED
from allotment.core.explain.history.concerned import Thing, concerned
from allotment.core.explain.history.pod_story import Moment, PodLife
from allotment.core.explain.history.spans import SpanView, final_spans
from allotment.core.explain.history.timeline import life_of
from allotment.core.ledger.model import ENDED, ClusterState
from allotment_proto.events import Decided, Envelope, Event, Evicted, PodGone, PodObserved

_LIVES_MAX = 20_000
_LINGER_MS = 30_000
"""How long, by the log's clock, the final spans of a waiting pod are held before they are given
out.
"""
_SLOW_MS = 60_000
_NOT_BEGUN = 1 << 63


class Part(NamedTuple):
    """Spans of one pod's trace that are final and were not given out before."""

    uid: str
    spans: list[SpanView]


class _Kept:
    """A life with its bookkeeping: where it is indexed, and what was given out."""

    __slots__ = ("given_seq", "is_chosen", "is_running", "story", "things")

    def __init__(self, story: PodLife) -> None:
        self.story = story
        self.things: set[Thing] = set()
        self.given_seq = 0
        self.is_running = False
        """Whether its beginning to run was seen here."""
        self.is_chosen: bool | None = None
        """Whether its trace is given out; None until known. False may become True later."""


class Lives:
    """Follows the pods of ours. `choose` says of a pod that was placed at once whether its trace is
    given out; those that were refused, retried, evicted, slow or ended badly always are.
    """

    def __init__(
        self, choose: Callable[[str], bool], since_seq: int | None = 0, limit: int = _LIVES_MAX
    ) -> None:
        """Without `since_seq` nothing is given out until `begin_after` is called."""
        self.left_out = 0
        """Pods that got no trace, or none of their bad end, because there were too many."""
        self._choose = choose
        self._since_seq = _NOT_BEGUN if since_seq is None else since_seq
        self._limit = limit
        self._passed_by: set[str] = set()
        """Existing pods that are not followed: known before the first record, from a snapshot, of
        other schedulers, or too many. The beginning of their lives is unknown here.
        """
        self._kept: dict[str, _Kept] = {}
        self._outside: dict[str, None] = {}
        """Lives that run and are not in the sample, the longest first."""
        self._let_go: set[str] = set()
        """Existing pods whose lives were dropped to make room for other lives."""
        self._concerning: dict[Thing, dict[str, None]] = {}
        """The lives that events about a pod, a group or a node may belong to."""
        self._due: dict[str, None] = {}
        self._lingering: dict[str, int] = {}
        """Lives of which something is final and not given out, the longest first: since when."""

    def __len__(self) -> int:
        return len(self._kept)

    def follow(self, seq: int, time_ms: int, envelope: Envelope, state: ClusterState) -> None:
        """One record, after it took effect on `state`; its time is the log's."""
        moment = Moment(seq=seq, time_ms=time_ms, by=envelope.by)
        for event in envelope.events:
            if isinstance(event, PodObserved):
                self._observed(event, moment, state)
                continue
            for uid in self._about(event):
                kept = self._kept.get(uid)
                if kept is not None:
                    kept.story.follow(event, moment, lambda: state)
                    self._note(uid, kept, moment)
                    if not isinstance(event, Evicted | PodGone):  # a gang has many victims
                        self._concern(uid, kept, kept.story.things)
            self._link(event)
        while self._lingering:
            uid, since_ms = next(iter(self._lingering.items()))
            if time_ms - since_ms < _LINGER_MS:
                break
            del self._lingering[uid]
            self._due[uid] = None

    def pass_by(self, uids: Iterable[str]) -> None:
        """These pods were there before the first record, and are not followed."""
        self._passed_by.update(uids)

    def begin_after(self, seq: int) -> None:
        """Count everything that is final up to this record as given out; give out the rest."""
        self._since_seq = seq

    def parts(self, state: ClusterState, now_ms: int, most: int) -> Iterator[Part]:
        """What is due of a limited number of pods; `now_ms` is the log's clock."""
        for _ in range(min(most, len(self._due))):
            uid = next(iter(self._due))
            del self._due[uid]
            kept = self._kept.get(uid)
            spans = [] if kept is None else self._part(uid, kept, state, now_ms)
            if spans:
                yield Part(uid, spans)

    @property
    def waiting(self) -> int:
        """Pods of which something is due."""
        return len(self._due)

    def _part(self, uid: str, kept: _Kept, state: ClusterState, now_ms: int) -> list[SpanView]:
        story = kept.story
        is_over = _is_over(story)
        is_settled = is_over or kept.is_running
        since_seq = max(kept.given_seq, self._since_seq)
        if not kept.is_chosen and _is_notable(story):
            if kept.is_chosen is False:
                since_seq = 0  # nothing of it was given out before
            kept.is_chosen = True
        elif kept.is_chosen is None and is_settled:
            kept.is_chosen = self._choose(uid)
        spans: list[SpanView] = []
        if kept.is_chosen:
            if state.seq > self._since_seq:
                told = life_of(state, story, now_ms, is_timed=False)
                spans = final_spans(told, since_seq)
            kept.given_seq = max(kept.given_seq, state.seq)
        if is_over:
            self._forget(uid, kept)
        elif kept.is_chosen is False:
            story.forget_others()
            self._outside[uid] = None
        elif is_settled:
            story.forget_past()
        return spans

    def _observed(self, event: PodObserved, moment: Moment, state: ClusterState) -> None:
        kept = self._kept.get(event.uid)
        if kept is not None:
            kept.story.observed(event, moment, lambda: state)
        elif self._is_followed(event, state):
            kept = self._kept[event.uid] = _Kept(PodLife(event, moment))
            kept.story.begin(lambda: state)
        else:
            return
        self._note(event.uid, kept, moment)
        self._concern(event.uid, kept, kept.story.things)

    def _is_followed(self, event: PodObserved, state: ClusterState) -> bool:
        """Whether to follow a pod from now on. The first call for a pod decides."""
        if event.uid in self._passed_by:
            if event.phase == "Failed":
                self._ends_unheard(event.uid)
            return False
        self._passed_by.add(event.uid)
        if event.scheduler not in state.policy.scheduler_names or not _is_news(event):
            return False
        if len(self._kept) >= self._limit:
            if not self._outside:
                self.left_out += 1
                return False
            uid = next(iter(self._outside))
            self._forget(uid, self._kept[uid])
            self._let_go.add(uid)
        self._passed_by.discard(event.uid)
        return True

    def _ends_unheard(self, uid: str) -> None:
        """Count a pod that ends badly, or will, if its life was dropped: its trace is missing."""
        if uid in self._let_go:
            self._let_go.discard(uid)
            self.left_out += 1

    def _note(self, uid: str, kept: _Kept, moment: Moment) -> None:
        """After something happened to a pod: whether a part is due."""
        story = kept.story
        begins_to_run = story.ran is not None and not kept.is_running
        kept.is_running = story.ran is not None
        if begins_to_run or _is_over(story):
            self._lingering.pop(uid, None)
            self._due[uid] = None
        elif not kept.is_running:
            self._lingering.setdefault(uid, moment.time_ms)

    def _about(self, event: Event) -> Iterable[str]:
        """The uids of the lives that an event may belong to."""
        lives = (self._concerning.get(thing, ()) for thing in concerned(event))
        return dict.fromkeys(chain.from_iterable(lives))

    def _link(self, event: Event) -> None:
        """Keep track of the pods whose lives were dropped."""
        match event:
            case Decided():
                for eviction in event.evictions:
                    self._ends_unheard(eviction.uid)
            case PodGone():
                self._let_go.discard(event.uid)
                self._passed_by.discard(event.uid)
            case _:
                pass

    def _concern(self, uid: str, kept: _Kept, things: set[Thing]) -> None:
        for thing in kept.things - things:
            del self._concerning[thing][uid]
            if not self._concerning[thing]:
                del self._concerning[thing]
        for thing in things - kept.things:
            self._concerning.setdefault(thing, {})[uid] = None
        kept.things = things

    def _forget(self, uid: str, kept: _Kept) -> None:
        self._concern(uid, kept, set())
        self._due.pop(uid, None)
        self._lingering.pop(uid, None)
        self._outside.pop(uid, None)
        del self._kept[uid]
        if kept.story.gone is None:
            self._passed_by.add(uid)


def _is_news(event: PodObserved) -> bool:
    """Whether there is a story to follow: not of a pod that is over, or that runs already."""
    return event.phase not in ENDED and not (event.node and event.phase != "Pending")


def _is_over(story: PodLife) -> bool:
    return story.gone is not None or story.ended is not None


def _is_notable(story: PodLife) -> bool:
    """Whether a trace of it is wanted whatever the sample: it was not simply placed and run."""
    if story.attempts_total > 1 or story.eviction is not None or story.displaced:
        return True
    if any(attempt.outcome != PLACED for attempt in story.attempts):
        return True
    until = story.ran or story.gone or story.ended
    if until is not None and until.time_ms - story.first.time_ms > _SLOW_MS:
        return True
    ending = story.fact.ending
    is_disrupted = ending is not None and bool(ending.disruption)
    return story.node_gone is not None or story.fact.phase == "Failed" or is_disrupted
