"""A proposal → the decision to append, on the binder's newest state: the binder's pure part."""

from typing import Final, Literal

from allotment.core.cycle import recheck_all, same_refusal, stamped
from allotment.core.state import ClusterState
from allotment_proto.events import Decided, Placement, StageTime
from allotment_proto.messages import Proposal

NOTHING: Final = "nothing"
CONFLICT: Final = "conflict"


def decide(
    state: ClusterState, proposal: Proposal, now_s: int, stage: StageTime
) -> Decided | Literal["nothing", "conflict"]:
    """What to append for a proposal, or why there is nothing to append.

    Every placement is asked for again, on top of those accepted before it. ``conflict`` means that
    something was proposed but nothing of it stands any more: it has to be proposed anew. A proposal
    that comes twice has nothing new to say the second time, so nobody is told twice.

    What was placed by quota counts only on what was decided before: quota is not asked for again
    here, so after another decision it has to be proposed anew.
    """
    if is_overtaken(state, proposal):
        return CONFLICT
    accepted, dropped, wholes = recheck_all(state, proposal.placements, proposal.wholes)
    refusals = tuple(r for r in proposal.refusals if r.uid in state.pending)
    is_news = any(
        not same_refusal(state.pods[r.uid].refusal, r) for r in refusals
    ) or _is_news_of_groups(state, proposal)
    if not accepted and not is_news:
        return CONFLICT if dropped else NOTHING
    return Decided(
        cycle=proposal.cycle,
        basis=proposal.basis,
        checked=state.seq,
        policy=proposal.policy,
        batch=proposal.batch,
        placements=tuple(stamped(state, accepted, now_s)),
        dropped=dropped,
        refusals=refusals,
        assumed=proposal.assumed,
        stages=(*proposal.stages, stage),
        wholes=wholes,
        shorts=proposal.shorts,
        admissions=proposal.admissions,
        evictions=proposal.evictions,
        holds=proposal.holds,
        nominations=proposal.nominations,
    )


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
        or (proposal.holds is not None and proposal.holds != state.holds)
    )


def accepted(state: ClusterState, decided: Decided, seq: int) -> list[Placement]:
    """The placements of a landed decision that the fold upheld: only these may be bound."""
    out = []
    for placement in decided.placements:
        pod = state.pods.get(placement.uid)
        if pod is not None and pod.allocation is not None and pod.allocation.seq == seq:
            out.append(placement)
    return out
