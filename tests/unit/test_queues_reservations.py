"""Big gangs are not starved: who is counted as passing, what is held, and until when."""

from collections.abc import Sequence

import pytest

from allotment.core.queues.actions.allocate import (
    COMMITTED,
    DISCARDED,
    Turn,
    cause_of,
)
from allotment.core.queues.model import JobView, Status
from allotment.core.queues.reservations import (
    Candidate,
    Hold,
    Rule,
    Wait,
    outranks,
    renew,
    shortest,
)
from allotment.core.queues.session import Session
from allotment.core.queues.work import Job
from tests.unit.queues_parts import Toy, allocate, amounts, job, plugin, queue, session, task

RULE = Rule(patience=3)


def test_who_outranks_whom() -> None:
    queues = [queue("q"), queue("vip", priority=1)]
    found = session(
        job("g", 4, priority=5),
        job("higher", 1, priority=6),
        job("vip", 1, queue="vip"),
        job("same", 1, priority=5),
        queues=queues,
    )
    g = found.jobs["g"]
    ranks = {uid: outranks(found, other, g) for uid, other in found.jobs.items()}
    assert ranks == {"g": False, "higher": True, "vip": True, "same": False}


def test_the_shortest_row_of_nodes() -> None:
    nodes = [Candidate("d", 0), Candidate("c", 2), Candidate("a", 2), Candidate("b", 1)]
    asked: list[Sequence[str]] = []

    def three(names: Sequence[str]) -> bool:
        asked.append(names)
        return len(names) >= 3

    assert shortest(nodes, three) == ("d", "b", "a")
    assert len(asked) <= 4
    assert shortest(nodes, lambda names: len(names) >= 5) == ()
    assert shortest([], lambda names: True) == ()


def nodes_of(*names: str) -> list[Candidate]:
    return [Candidate(name, 1) for name in names]


def test_a_hold_is_kept_while_it_is_enough() -> None:
    found = session(job("g", 2), job("s", 1))
    waits = {"g": Wait(7, 3)}

    def candidates(_: Job) -> list[Candidate]:
        return nodes_of("n1", "n2", "n3")

    def two(_: Job, names: Sequence[str]) -> bool:
        return len(names) >= 2

    (hold,) = first = renew(found, (), waits, RULE, candidates, two)
    assert hold == Hold("g", 7, ("n1", "n2"))
    kept = renew(found, first, waits, RULE, lambda _: nodes_of("n0", "n9"), two)
    assert kept == first, "better nodes do not move it: what was drained would be lost"
    moved = renew(found, first, waits, RULE, candidates, lambda _, names: "n3" in names)
    assert moved == (Hold("g", 7, ("n1", "n2", "n3")),)
    assert renew(found, first, {}, RULE, candidates, two) == ()
    assert renew(found, first, {"g": Wait(7, 2)}, RULE, candidates, two) == ()
    assert renew(found, (), waits, Rule(patience=3, most=0), candidates, two) == ()


def test_two_holds_never_share_a_node() -> None:
    found = session(job("g", 2), job("h", 2, priority=1), job("i", 2))
    waits = {"g": Wait(1, 9), "h": Wait(2, 9), "i": Wait(3, 9)}
    holds = renew(
        found,
        (),
        waits,
        Rule(patience=3, most=2),
        lambda _: nodes_of("n1", "n2", "n3", "n4"),
        lambda _, names: len(names) >= 2,
    )
    assert holds == (Hold("h", 2, ("n1", "n2")), Hold("g", 1, ("n3", "n4")))


@pytest.mark.parametrize(("members", "held"), [(4, True), (5, False)])
def test_quota_is_held_only_if_it_could_ever_do(members: int, held: bool) -> None:
    found = session(
        job("g", members),
        job("s", 3, created_ms=1),
        queues=[queue(capability=amounts(4))],
        tiers=[["gang"], ["capacity"]],
    )
    holds = renew(found, (), {"g": Wait(1, 9, "q")}, RULE, lambda _: [], lambda _, __: True)
    assert bool(holds) == held


def placed(found: Session, toy: Toy, *holds: Hold) -> dict[str, str]:
    return {turn.job: turn.ending for turn in allocate(found, toy, holds=holds)}


def test_held_nodes_are_for_the_holder_and_those_who_outrank_it() -> None:
    hold = Hold("g", 1, ("n1",))
    group = job("g", 2)

    def toy() -> Toy:
        return Toy({"n1": 1, "n2": 0})

    assert placed(session(group, job("s", 1)), toy(), hold) == {"g": DISCARDED, "s": DISCARDED}
    assert placed(session(group, job("s", 1)), toy()) == {"g": DISCARDED, "s": COMMITTED}
    high = job("s", 1, priority=1)
    assert placed(session(group, high), toy(), hold) == {"s": COMMITTED, "g": DISCARDED}
    assert placed(session(group, job("s", 1)), Toy({"n1": 2, "n2": 1}), hold) == {
        "g": COMMITTED,
        "s": COMMITTED,
    }, "the holder goes in, the small one takes the rest"


def test_a_held_queue_lets_only_the_holder_grow() -> None:
    queues = [queue("q", capability=amounts(4)), queue("other")]
    jobs = [job("g", 2), job("s", 1, created_ms=1), job("o", 1, queue="other")]
    found = session(*jobs, queues=queues, tiers=[["gang"], ["capacity"]])
    turns = list(allocate(found, Toy({"n1": 1}), holds=[Hold("g", 1, queue="q")]))
    by_job = {turn.job: turn for turn in turns}
    assert by_job["s"].ending == DISCARDED
    assert by_job["s"].no is not None
    assert by_job["s"].no.code == "HeldForGang"
    assert by_job["s"].no.message.startswith("the quota of queue q is held for default/g")
    assert by_job["o"].ending == COMMITTED


def passed_by(waits: dict[str, Wait], turns: Sequence[Turn], number: int) -> dict[str, Wait]:
    """The wait of the one gang after a round; as the fold counts, where nobody outranks it."""
    no = next(cause_of(turn) for turn in turns if turn.job == "gang")
    assert no is not None
    known = waits.get("gang", Wait(number))
    passed = sum(turn.ending == COMMITTED for turn in turns)
    return {"gang": Wait(known.since, known.passed + passed, no.queue)}


def rounds_until_started(rule: Rule, most: int) -> int | None:
    """Small jobs arrive for ever, one more each round than end; the gang wants all four nodes.

    Every round the oldest small pod ends. Answers the round in which the gang starts.
    """
    gang: JobView = job("gang", [task(f"g-w-{n}", 2) for n in range(4)], created_ms=5)
    running: list[tuple[str, str]] = [(f"old{n}", f"n{n % 4 + 1}") for n in range(8)]
    waits: dict[str, Wait] = {}
    holds: tuple[Hold, ...] = ()
    for number in range(1, most + 1):
        running.pop(0)
        free = {f"n{n}": 2 for n in range(1, 5)}
        for _, node in running:
            free[node] -= 1
        small = [job(f"s{number}-{n}", 1, created_ms=number) for n in range(2)]
        found = session(gang, *small)
        turns = list(allocate(found, Toy(free), holds=holds))
        for turn in turns:
            if turn.ending == COMMITTED:
                if turn.job == "gang":
                    return number
                running.append((turn.job, turn.placed[0][1].node))
        waits = passed_by(waits, turns, number)
        in_the_way = {node: sum(at == node for _, at in running) for node in free}
        holds = renew(
            found,
            holds,
            waits,
            rule,
            lambda _, busy=in_the_way: [Candidate(*one) for one in busy.items()],  # type: ignore[misc]
            lambda _, names: len(names) >= 4,
        )
    return None


def test_without_the_rule_a_gang_starves_and_with_it_it_starts() -> None:
    assert rounds_until_started(Rule(most=0), 300) is None
    started = rounds_until_started(Rule(patience=5), 300)
    assert started is not None
    assert started <= 5 + 8 + 2, "patience, then as many rounds as pods have to end"
    later = rounds_until_started(Rule(patience=50), 300)
    assert later is not None
    assert later > started


def test_a_big_group_is_not_starved_of_its_quota() -> None:
    """The queue has 4 cards; small jobs keep taking what ends, the gang needs all 4."""
    gang = job("gang", 4)
    running = ["r0", "r1", "r2", "r3"]
    waits: dict[str, Wait] = {}
    holds: tuple[Hold, ...] = ()
    for number in range(1, 40):
        running.pop(0)
        held = [job(uid, [task(uid, status=Status.RUNNING)], created_ms=9) for uid in running]
        small = [job(f"s{number}-{n}", 1, created_ms=number) for n in range(2)]
        found = session(
            gang,
            *held,
            *small,
            queues=[queue(capability=amounts(4))],
            tiers=[["gang"], [plugin("capacity")]],
        )
        turns = list(allocate(found, Toy({"n1": 99}), holds=holds))
        started = [turn.job for turn in turns if turn.ending == COMMITTED]
        if "gang" in started:
            break
        running += started
        waits = passed_by(waits, turns, number)
        holds = renew(found, holds, waits, Rule(patience=5), lambda _: [], lambda _, __: False)
    else:
        pytest.fail("the gang starved")
    assert waits["gang"].queue == "q"
