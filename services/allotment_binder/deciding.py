"""A proposal → the decision to append, on the binder's newest state: the binder's pure part."""

from collections.abc import Callable, Iterator
from typing import Final, Literal, NamedTuple

from allotment.core.ledger.model import ClusterState
from allotment.core.placement.cycle import Rechecked, recheck_all, same_refusal, stamped
from allotment.core.queues.round.objections import objection
from allotment.core.queues.round.rounds import Rounds
from allotment_board import NodeRanker
from allotment_proto.events import Decided, Nomination, Placement, StageTime
from allotment_proto.messages import Proposal

NOTHING: Final = "nothing"
CONFLICT: Final = "conflict"
PARTS: Final = ("eviction", "nomination", "admission", "short", "hold")
"""What a proposal has besides placements and refusals, one word for each."""


class Part(NamedTuple):
    """Something of a proposal that is not decided: one of `PARTS`, and about which pod or group."""

    part: str
    about: str


class Answer(NamedTuple):
    """What to append for a proposal, or why there is nothing to append.

    ``conflict`` means that something was proposed but nothing of it stands: it has to be proposed
    again. With an `objection` it was not the scorer's round that was decided but one of the
    binder's own; `refused` is what the two do not have in common.
    """

    decided: Decided | Literal["nothing", "conflict"]
    objection: str = ""
    refused: tuple[Part, ...] = ()


class Deciding:
    """Decides proposals on one state. What its own rounds need is made when the first is run."""

    def __init__(self, state: ClusterState, checkpoint: Callable[[], None] = lambda: None) -> None:
        """`checkpoint` is called within its own rounds, and may raise to abandon one."""
        self.state = state
        self.rounds = Rounds(state, checkpoint=checkpoint)
        self._ranker: NodeRanker | None = None

    def open_ahead(self) -> None:
        """Read what nodes offer, so that the next proposal need not wait for it."""
        self.rounds.open_ahead()

    def follow_ahead(self) -> None:
        """Take over what a decision changed, so that the next proposal need not wait for it."""
        self.rounds.follow_ahead()

    def decide(self, proposal: Proposal, now_s: int, stage: StageTime) -> Answer:
        """Every placement is asked for again, on top of those accepted before it, and so is what
        the proposal says about groups and quotas. What the state does not bear out is not argued
        about: the binder runs the round on this state, and decides that. The same goes for all
        evictions, since only a round finds the victims.

        A proposal that comes twice has nothing new the second time, so no pod gets a second notice.
        Quota that was taken by another decision since has to be proposed again.
        """
        state = self.state
        # First, because what another decision did to quotas cannot be asked pod by pod: the pods
        # may all fit still while together they are more than is left for their queue.
        if is_overtaken(state, proposal):
            return Answer(CONFLICT)
        # Objections come after: a placement that a fact took away counts for no quota, and a gang
        # that lost one has lost them all by then.
        found = recheck_all(state, proposal.placements, proposal.wholes)
        why = objection(self.rounds, proposal, found.kept)
        if not why:
            return Answer(self._decided(proposal, found, now_s, stage))
        # Not rechecked: it was made on this very state, and nothing is awaited in between.
        own = self._own_round(proposal)
        found = Rechecked(own.placements, (), own.wholes)
        answer = self._decided(own, found, now_s, stage)
        return Answer(answer, why, tuple(_refused(proposal, own)))

    def _own_round(self, proposal: Proposal) -> Proposal:
        """The round over a proposal's batch, on the state as it is."""
        state = self.state
        if self._ranker is None:
            self._ranker = NodeRanker(state)
        batch = tuple(uid for uid in dict.fromkeys(proposal.batch) if uid in state.pods)
        made = self.rounds.run(batch, self._ranker)
        return Proposal(
            v=proposal.v,
            cycle=proposal.cycle,
            basis=state.seq,
            policy=state.policy_seq,
            batch=batch,
            placements=made.placements,
            refusals=made.refusals,
            stages=proposal.stages,
            wholes=made.wholes,
            shorts=made.shorts,
            admissions=made.admissions,
            evictions=made.evictions,
            holds=made.holds,
            nominations=made.nominations,
        )

    def _decided(
        self, proposal: Proposal, found: Rechecked, now_s: int, stage: StageTime
    ) -> Decided | Literal["nothing", "conflict"]:
        state = self.state
        refusals = tuple(r for r in proposal.refusals if r.uid in state.pending)
        is_news = any(
            not same_refusal(state.pods[r.uid].refusal, r) for r in refusals
        ) or _is_news_of_groups(state, proposal)
        if not found.kept and not is_news:
            return CONFLICT if found.dropped else NOTHING
        return Decided(
            cycle=proposal.cycle,
            basis=proposal.basis,
            checked=state.seq,
            policy=proposal.policy,
            batch=proposal.batch,
            placements=tuple(stamped(state, found.kept, now_s)),
            dropped=found.dropped,
            refusals=refusals,
            stages=(*proposal.stages, stage),
            wholes=found.wholes,
            shorts=proposal.shorts,
            admissions=proposal.admissions,
            evictions=proposal.evictions,
            holds=proposal.holds,
            nominations=proposal.nominations,
        )


def _refused(proposal: Proposal, own: Proposal) -> Iterator[Part]:
    """What was proposed besides placements and refusals and is not what the binder found."""
    evicted = {(eviction.uid, eviction.preemptor) for eviction in own.evictions}
    for eviction in proposal.evictions:
        if (eviction.uid, eviction.preemptor) not in evicted:
            about = f"pod {eviction.namespace}/{eviction.name} for {eviction.preemptor}"
            yield Part("eviction", about)
    nominated = {(nomination.uid, nomination.node) for nomination in own.nominations}
    for nomination in proposal.nominations:
        if (nomination.uid, nomination.node) not in nominated:
            about = f"pod {nomination.namespace}/{nomination.name} for node {nomination.node}"
            yield Part("nomination", about)
    let_in = {(admission.group, admission.code) for admission in own.admissions}
    for admission in proposal.admissions:
        if (admission.group, admission.code) not in let_in:
            yield Part("admission", f"group {admission.group}")
    short = {short.group for short in own.shorts}
    for said in proposal.shorts:
        if said.group not in short:
            yield Part("short", f"group {said.group}")
    for held in proposal.holds or ():
        if held not in (own.holds or ()):
            yield Part("hold", f"group {held.group}")


def is_overtaken(state: ClusterState, proposal: Proposal) -> bool:
    """Whether a proposal takes from quotas or evicts, and another decision landed since."""
    takes = proposal.placements or proposal.evictions
    return state.is_batched and bool(takes) and proposal.basis < state.decision_seq


def _is_news_of_groups(state: ClusterState, proposal: Proposal) -> bool:
    """Whether a proposal says something about groups that the log does not say already."""
    groups = state.groups
    return (
        any(s.group in groups and groups[s.group].short != s for s in proposal.shorts)
        or any(a.group in groups and groups[a.group].gate != a for a in proposal.admissions)
        or any(e.uid in state.pods and e.uid not in state.evicting for e in proposal.evictions)
        or not all(_is_known(state, nomination) for nomination in proposal.nominations)
        or (proposal.holds is not None and proposal.holds != state.holds)
        or any(n.is_tried(proposal.batch, proposal.basis) for n in state.nominated.values())
    )


def _is_known(state: ClusterState, nomination: Nomination) -> bool:
    """Whether the pod is nominated so already."""
    found = state.nominated.get(nomination.preemptor)
    return found is not None and (nomination.node, nomination.holdings) == (
        found.nodes.get(nomination.uid),
        found.holdings.get(nomination.uid),
    )


def accepted(state: ClusterState, decided: Decided, seq: int) -> list[Placement]:
    """The placements of a landed decision that the fold upheld: only these may be bound."""
    out = []
    for placement in decided.placements:
        pod = state.pods.get(placement.uid)
        if pod is not None and pod.allocation is not None and pod.allocation.seq == seq:
            out.append(placement)
    return out
