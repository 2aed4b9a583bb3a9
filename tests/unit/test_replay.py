"""Decisions made again: identical when the log is honest, and every kind of lie is found."""

from typing import Any

import msgspec
import pytest

from allotment.core.placement.cycle import recheck_all
from allotment.core.placement.evaluator import Evaluator
from allotment.core.queues.round.rounds import Rounds
from allotment.core.replay import again as replayed
from allotment.core.replay.again import remade
from allotment.core.replay.replay import Index, Replayer
from allotment_proto import subjects
from allotment_proto.codec import decode_envelope
from allotment_proto.decided import RULES
from allotment_proto.events import Decided
from allotment_proto.facts import Policy, Problem
from tests.recording import Recorder, busy_cluster, fold, vgpu
from tests.recording_batch import POLICY, BatchRecorder
from tests.replaying import verify
from tests.unit.replaying import LIES, tampered, two_on_one_node


def test_an_honest_log_is_identical() -> None:
    log = busy_cluster()
    report = verify(log.records)
    assert (report.decisions, report.identical, report.different) == (3, 3, 0)
    assert report.seq == log.seq


def test_what_the_binder_dropped_is_dropped_again() -> None:
    log = two_on_one_node()
    envelope = decode_envelope(log.records[-1].payload)
    decided = envelope.events[0]
    assert isinstance(decided, Decided)
    assert [d.code for d in decided.dropped] == ["InsufficientGPUMemory"]
    assert decided.basis < decided.checked
    report = verify(log.records)
    assert (report.identical, report.different) == (2, 0)


def test_stamps_keep_their_order_when_the_clock_does_not_move() -> None:
    log = Recorder()
    log.node("n1", cards=4)
    log.decide(*(log.pod(f"p{i}", vgpu(1, 1000, 10)) for i in range(4)))
    assert verify(log.records).identical == 1


@pytest.mark.parametrize("lie", LIES)
def test_every_lie_is_found(lie: str) -> None:
    log = Recorder()
    log.node("n1", cards=1)
    log.node("n2", cards=1, memory_mib=50000)
    fits, never = log.pod("fits"), log.pod("never", vgpu(1, 99999, 10))
    log.decide(fits, never)
    field, change = LIES[lie]
    report = verify(tampered(log.records, change))
    assert (report.identical, report.different) == (0, 1)
    assert report.first_difference is not None
    assert (report.first_difference.seq, report.first_difference.field) == (log.seq, field)
    assert report.first_difference.recorded != report.first_difference.recomputed


def test_the_first_difference_is_the_one_with_the_lowest_sequence() -> None:
    log = Recorder()
    log.node("n1", cards=4)
    seqs = [log.decide(log.pod(name)) for name in ("a", "b")]
    forged = list(log.records)
    for seq in seqs:
        part = tampered(forged[:seq], lambda d: msgspec.structs.replace(d, policy=d.policy + 50))
        forged = [*part, *forged[seq:]]
    report = verify(forged)
    assert report.different == 2
    assert report.first_difference is not None
    assert report.first_difference.seq == seqs[0]


def test_a_landed_decision_that_did_not_see_its_predecessor_is_a_difference() -> None:
    log = Recorder()
    log.node("n1", cards=4)
    a, b = log.pod("a"), log.pod("b")
    before = log.seq
    log.decide(a)
    log.decide(b, basis=before)
    assert verify(log.records).identical == 2
    report = verify(tampered(log.records, lambda d: msgspec.structs.replace(d, checked=before)))
    assert report.first_difference is not None
    assert report.first_difference.field == "previous decision"
    assert report.first_difference.recorded == log.seq - 1


def three_decisions() -> tuple[Recorder, list[int]]:
    log = Recorder()
    log.node("n1", cards=4)
    return log, [log.decide(log.pod(name)) for name in "abc"]


def test_a_decision_that_cannot_be_recomputed_is_a_finding_and_the_others_are_made_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What raised may have left the rounds half updated: here it is of no use afterwards."""
    log, seqs = three_decisions()
    broken: list[Rounds] = []
    run = Rounds.run

    def run_or_raise(rounds: Rounds, batch: Any, *more: Any, **named: Any) -> Any:
        if rounds.state.seq < seqs[1] and rounds.state.seq > seqs[0]:
            broken.append(rounds)
        if rounds in broken:
            raise KeyError("b")
        return run(rounds, batch, *more, **named)

    monkeypatch.setattr(Rounds, "run", run_or_raise)
    report = verify(log.records)
    assert (report.decisions, report.identical, report.different) == (3, 2, 1)
    found = report.first_difference
    assert found is not None
    assert (found.seq, found.field, found.recomputed) == (seqs[1], "exception", "KeyError: 'b'")
    (event,) = decode_envelope(log.records[seqs[1] - 1].payload).events
    assert isinstance(event, Decided)
    states = [fold(log.records[: seqs[1] - 1])]
    assert (
        remade(seqs[1], event, 0, states, Evaluator).why_not
        == "recomputing it raised KeyError: 'b'"
    )


def test_a_decision_whose_check_raises_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    log, seqs = three_decisions()

    def check_or_raise(state: Any, placements: Any, wholes: Any) -> Any:
        if state.seq == seqs[2] - 1:
            raise ValueError("too much")
        return recheck_all(state, placements, wholes)

    monkeypatch.setattr(replayed, "recheck_all", check_or_raise)
    report = verify(log.records)
    assert (report.decisions, report.identical, report.different) == (3, 2, 1)
    found = report.first_difference
    assert found is not None
    assert (found.seq, found.recomputed) == (seqs[2], "ValueError: too much")


def test_cycles_and_stages_are_not_compared() -> None:
    log = busy_cluster()
    renamed = tampered(log.records, lambda d: msgspec.structs.replace(d, cycle="other", stages=()))
    assert verify(renamed).identical == 3


def test_what_this_release_cannot_make_again_is_skipped_with_the_reason() -> None:
    other = Recorder()
    other.policy(Policy(families=("vgpu", "quantum")))
    other.node("n1")
    other.decide(other.pod("a"))
    found = verify(other.records).first_skipped
    assert found is not None
    assert "quantum" in found.reason


def test_a_decision_by_rules_of_a_later_release_is_skipped() -> None:
    log = BatchRecorder()
    log.policy(POLICY)
    log.queue("default")
    log.node("n1")
    log.group("team", 2, 2, 4_000)
    problem = Problem("InvalidRequest", "containers a, b", "ask for parts of a GPU")
    for uid in tuple(log.state.pods):
        log.observe(uid, problem=problem)
    log.round()
    short = log.state.groups["default/team"].short
    assert short is not None
    assert "worker-0: containers a, b ask for parts" in short.message
    report = verify(log.records)
    assert (report.identical, report.different, report.skipped) == (1, 0, 0)
    newer = tampered(log.records, lambda d: msgspec.structs.replace(d, rules=RULES + 1))
    found = verify(newer).first_skipped
    assert found is not None
    assert (
        found.reason == f"it was made by rules {RULES + 1}, this release knows those up to {RULES}"
    )


def test_unreadable_records_are_counted_and_change_nothing() -> None:
    log = Recorder()
    log.node("n1")
    log.append_bytes("allot.log.pod.x", b'{"v":9,"at_ms":0,"by":"future","events":[]}')
    log.append_bytes(subjects.DECISION, b"not even JSON")
    log.decide(log.pod("a"))
    report = verify(log.records)
    assert (report.undecodable, report.identical) == (2, 1)


def test_a_range_is_verified_alone() -> None:
    log = busy_cluster()
    assert verify(log.records, first=12).decisions == 2
    assert verify(log.records, first=1, last=20).decisions == 1


def test_the_hash_is_that_of_the_state_and_nothing_else() -> None:
    log = busy_cluster()
    again = verify(log.records)
    assert verify(log.records).state_sha256 == again.state_sha256
    assert verify(log.records[:-1]).state_sha256 != again.state_sha256


def test_what_is_held_is_bounded_by_how_far_decisions_look_back() -> None:
    log = Recorder()
    log.node("n1", cards=8)
    for i in range(40):
        uid = log.pod(f"p{i}", vgpu(1, 1000, 1))
        log.decide(uid)
        log.bind(uid)
    index = Index()
    for record in log.records:
        index.feed(record)
    replayer, held = Replayer(index.stops), 0
    for record in log.records:
        replayer.feed(record)
        held = max(held, replayer.buffered)
    assert held <= 3
    assert replayer.report().identical == 40


def test_a_log_that_ends_before_an_indexed_decision_is_an_error() -> None:
    log = busy_cluster()
    index = Index()
    for record in log.records:
        index.feed(record)
    replayer = Replayer(index.stops)
    for record in log.records[:15]:
        replayer.feed(record)
    with pytest.raises(ValueError, match="decision 21 is in the index, the records end at 15"):
        replayer.report()
