"""Recompute one decision and compare it, bit for bit, with the record.

First the scorer's half, on the state at `basis`, then the binder's, on the state at `checked`.
`cycle` and `stages` are inputs: they are not compared. The binder's clock is an input too; it is
the record's `at_ms`.
"""

from collections.abc import Callable, Iterable

import msgspec

from allotment.core.ledger.model import ClusterState
from allotment.core.placement.cycle import Outcome, in_order, proposed, recheck_all, stamped
from allotment.core.placement.devices import FAMILIES
from allotment.core.placement.evaluator import Ranker
from allotment.core.queues.round.rounds import Rounds
from allotment_proto.decided import RULES
from allotment_proto.events import Decided

RAISED = "exception"
"""The field of a `Difference` of a decision whose recomputation raised an exception."""


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """The first field of a decision that differs. Both values are plain data."""

    seq: int
    cycle: str
    field: str
    recorded: object
    recomputed: object


class Skipped(msgspec.Struct, frozen=True, kw_only=True):
    """A decision that this release cannot recompute, and why."""

    seq: int
    cycle: str
    reason: str


Finding = Difference | Skipped | None
"""None: identical."""

_OF_THE_PROCESS = (MemoryError, RecursionError)
"""Exceptions that follow from the process that recomputes, and not from the log."""


class Remade(msgspec.Struct, frozen=True, rename="camel"):
    """The result for a decision: identical, or different with `field` the first difference, or not
    recomputed: `why_not` says why.
    """

    field: str = ""
    why_not: str = ""

    @property
    def is_identical(self) -> bool:
        return not self.field and not self.why_not


def remade(
    seq: int,
    event: Decided,
    at_ms: int,
    states: Iterable[ClusterState],
    make_ranker: Callable[[ClusterState], Ranker],
) -> Remade:
    """Recompute a decision of the record `seq`. `states` are those at its basis, where it was
    checked, and right before its record, each only until the next one is asked for and each given
    once. They stay as they are.
    """
    finding: Finding = looks_back(seq, event)
    made: Outcome | None = None
    checked: Finding = None
    previous = decided = 0
    for state in states if finding is None else ():
        if state.seq == event.basis:
            ranker, rounds = make_ranker(state), Rounds(state)
            finding, made = place_again(seq, event, state, ranker, rounds)
            if finding is not None:
                break
        if state.seq == event.checked and made is not None:
            decided = state.decision_seq
            checked = check_again(seq, event, at_ms, decided, state, made)
        previous = state.decision_seq
    if finding is None and previous != decided:
        finding = _difference(seq, event, "previous decision", previous, decided)
    finding = finding or checked
    if finding is None and made is None:
        return Remade(why_not="the states that it stood on cannot be read")
    if isinstance(finding, Skipped):
        return Remade(why_not=finding.reason)
    if finding is not None and finding.field == RAISED:
        return Remade(why_not=f"recomputing it raised {finding.recomputed}")
    return Remade(field="" if finding is None else finding.field)


def looks_back(seq: int, event: Decided) -> Difference | None:
    """A difference if a fact that the decision is based on is not in the log before it."""
    if event.basis <= event.checked < seq:
        return None
    looked_back = f"basis {event.basis}, checked {event.checked}"
    return _difference(seq, event, "basis", looked_back, f"basis ≤ checked < {seq}")


def place_again(
    seq: int, event: Decided, state: ClusterState, ranker: Ranker, rounds: Rounds
) -> tuple[Finding, Outcome | None]:
    """The scorer's half: the whole batch on the state at `basis`, rejections included. After a
    finding of `RAISED`, create a new ranker and new rounds.
    """
    try:
        return _place_again(seq, event, state, ranker, rounds)
    except _OF_THE_PROCESS:
        raise
    except Exception as error:
        return _raised(seq, event, error), None


def _place_again(
    seq: int, event: Decided, state: ClusterState, ranker: Ranker, rounds: Rounds
) -> tuple[Finding, Outcome | None]:
    reason = _why_not(event, state)
    if reason:
        return Skipped(seq=seq, cycle=event.cycle, reason=reason), None
    again = rounds.run(event.batch, ranker)
    finding = _first_difference(
        seq,
        event,
        ("policy", event.policy, state.policy_seq),
        ("placements", proposed(event), in_order(event.batch, again.placements)),
        ("shorts", event.shorts, again.shorts),
        ("admissions", event.admissions, again.admissions),
        ("holds", event.holds, again.holds),
        ("evictions", event.evictions, again.evictions),
        ("nominations", event.nominations, again.nominations),
    )
    return finding, again


def check_again(
    seq: int, event: Decided, at_ms: int, previous: int, state: ClusterState, made: Outcome
) -> Finding:
    """The binder's half: check the proposed placements again on the state at `checked`. `previous`
    is the record of the decision before this one.
    """
    try:
        return _check_again(seq, event, at_ms, previous, state, made)
    except _OF_THE_PROCESS:
        raise
    except Exception as error:
        return _raised(seq, event, error)


def _check_again(
    seq: int, event: Decided, at_ms: int, previous: int, state: ClusterState, made: Outcome
) -> Finding:
    kept, dropped, standing = recheck_all(state, made.placements, made.wholes)
    still = tuple(r for r in made.refusals if r.uid in state.pending)
    stamps = tuple(stamped(state, kept, at_ms // 1000))
    return _first_difference(
        seq,
        event,
        ("previous decision", previous, state.decision_seq),
        ("dropped", event.dropped, dropped),
        ("wholes", event.wholes, standing),
        ("refusals", event.refusals, still),
        ("stamped placements", event.placements, stamps),
    )


def _raised(seq: int, event: Decided, error: Exception) -> Difference:
    return _difference(seq, event, RAISED, None, f"{type(error).__name__}: {error}")


def _why_not(event: Decided, state: ClusterState) -> str:
    """Why this release cannot recompute a decision; empty if it can."""
    if event.rules > RULES:
        return f"it was made by rules {event.rules}, this release knows those up to {RULES}"
    unknown = sorted(set(state.policy.families) - set(FAMILIES))
    if unknown:
        return f"device families not known to this release: {', '.join(unknown)}"
    return ""


def _first_difference(
    seq: int, event: Decided, *fields: tuple[str, object, object]
) -> Difference | None:
    for field, recorded, recomputed in fields:
        if recorded != recomputed:
            return _difference(seq, event, field, *_narrow(recorded, recomputed))
    return None


def _narrow(recorded: object, recomputed: object) -> tuple[object, object]:
    """Of two lists only the first pair that differs: a whole batch is too long to read."""
    if not (isinstance(recorded, tuple) and isinstance(recomputed, tuple)):
        return recorded, recomputed
    length = max(len(recorded), len(recomputed))
    pairs = [
        tuple(items[i] if i < len(items) else None for items in (recorded, recomputed))
        for i in range(length)
    ]
    return next(((a, b) for a, b in pairs if a != b), (recorded, recomputed))


def _difference(
    seq: int, event: Decided, field: str, recorded: object, recomputed: object
) -> Difference:
    """That a field came out otherwise."""
    return Difference(
        seq=seq,
        cycle=event.cycle,
        field=field,
        recorded=msgspec.to_builtins(recorded),
        recomputed=msgspec.to_builtins(recomputed),
    )
