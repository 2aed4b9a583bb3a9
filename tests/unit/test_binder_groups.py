"""What PodGroups and their members are told, from the books and from what is said already."""

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from allotment.core.ledger.model import Group
from allotment.core.queues.model import Phase, Status
from allotment.core.queues.round.members import job_of
from allotment.core.reasons import refusal_text
from allotment_binder.gang_notices import waits_because
from allotment_binder.group_status import (
    Change,
    SeenGroup,
    change_of,
    phase_before,
    quota_of,
    tail_of,
)
from allotment_binder.readers import Readers
from allotment_proto.events import Admission, GroupObserved, QueueObserved, Short
from allotment_proto.facts import PluginUse, Policy
from tests import build
from tests.unit.queues_parts import job, statuses
from tests.unit.rounds_world import World
from tests.unit.rounds_world import group as told_group

TAIL = "pod group is not ready, 3 Pending, 3 minAvailable"
LACKING = f"2/3 tasks in gang unschedulable: {TAIL}"
READY = {"type": "Scheduled", "status": "True", "reason": "tasks in gang are ready to be scheduled"}
NOT = {"type": "Unschedulable", "status": "True", "reason": "NotEnoughResources"}
T1, T2 = "2026-03-01T12:00:00Z", "2026-03-01T12:00:01Z"


def group(phase: str = "Inqueue", *, rv: int = 1, short: str = "", admitted: int = 0) -> Group:
    found = Group()
    found.fact = GroupObserved(uid="g", namespace="default", name="g", rv=rv, phase=phase)
    found.admitted_seq = admitted
    if short:
        found.short = Short("default/g", "NotEnoughResources", short, 3, 3, 1, True)
    return found


def seen(
    phase: str = "Inqueue", *conditions: dict[str, str], rv: int = 1, **status: Any
) -> SeenGroup:
    said = {"phase": phase, "conditions": list(conditions), **status}
    body = {"metadata": {"uid": "g", "resourceVersion": str(rv)}, "status": said}
    return msgspec.convert(body, SeenGroup)


def change(
    known: Group, counts: dict[str, int], shown: SeenGroup, members: int = 3
) -> Change | None:
    view = job("default/g", statuses("g", **counts), min_member=members)
    return change_of(known, view, shown, now=T2, transition="allotment-9", readers=Readers())


@pytest.mark.parametrize(
    ("before", "counts", "short", "after"),
    [
        ("", {"Pending": 3}, "", "Pending"),
        ("Inqueue", {"Bound": 3}, "", "Running"),
        ("Running", {"Running": 2, "Pending": 1}, LACKING, "Unknown"),
        ("Running", {"Succeeded": 3}, "", "Completed"),
        ("Running", {"Running": 1, "Succeeded": 2}, "", "Running"),
        ("Inqueue", {"Binding": 3}, "", "Inqueue"),
        ("Running", {"Pending": 3}, "", "Pending"),
        ("Running", {"Succeeded": 2, "Failed": 1}, "", "Completed"),
    ],
)
def test_ex_phase(before: str, counts: dict[str, int], short: str, after: str) -> None:
    known = group(before, short=short)
    found = change(known, counts, seen(before))
    assert (found.status if found else {}).get("phase", before) == after


def test_nothing_is_written_that_is_said_already() -> None:
    said = {**NOT, "message": LACKING, "lastTransitionTime": T1, "transitionID": "other"}
    assert change(group(short=LACKING), {"Pending": 3}, seen("Inqueue", said)) is None
    assert change(group(), {"Pending": 3}, seen()) is None, "no decision, no word"
    blank = msgspec.convert({"metadata": {"uid": "g", "resourceVersion": "1"}}, SeenGroup)
    found = change(group(""), {}, blank)
    assert found == Change({"phase": "Pending"}, None)


def test_a_quota_that_is_short_is_said_with_its_amounts() -> None:
    """In the condition and its Event, as in the Event of the pod that was refused."""
    number = "volcano.sh/vgpu-number"
    tiers = ((PluginUse("gang"),), (PluginUse("predicates"), PluginUse("capacity")))
    policy = Policy(tiers=tiers, actions=("allocate", "backfill"))
    world = World(build.node("n1", 8, extended=((number, 80),)), policy=policy)
    world.tell(QueueObserved(uid="q", name="team", rv=1, capability=((number, 3_000),)))
    world.tell(told_group("g", 4, queue="team"))
    asked = msgspec.structs.replace(build.request(build.wants(1, 0)), extended=((number, 1),))
    for name in "abcd":
        world.tell(build.pod(name, asked, name=name, group="default/g", role="w"))
    decided = world.decide()
    (refusal,) = [each for each in decided.refusals if each.quota]
    known = world.state.groups["default/g"]
    assert known.fact is not None
    view = job_of(world.state, "default/g", known, known.fact)
    quota = quota_of(world.state, known)
    assert quota == refusal.quota
    found = change_of(
        known, view, seen(), now=T2, transition="allotment-9", readers=Readers(), quota=quota
    )
    assert found is not None
    assert found.told is not None
    (said,) = found.status["conditions"]
    amounts = f"(queue team: 3 of 3 {number} in use, 1 requested)"
    assert said["message"].endswith(amounts)
    assert found.told.note.endswith(amounts)
    assert amounts.removeprefix("(queue team: ") in refusal_text(refusal)


def test_a_condition_replaces_that_of_its_type_and_spares_others() -> None:
    theirs = {"type": "Theirs", "status": "True", "extra": "kept"}
    old = {**NOT, "message": "old", "lastTransitionTime": T1}
    found = change(group(short=LACKING), {"Pending": 3}, seen("Inqueue", old, theirs))
    assert found is not None
    times = {"lastTransitionTime": T2, "transitionID": "allotment-9"}
    assert found.status == {"conditions": [theirs, {**NOT, "message": LACKING, **times}]}
    said = f"3/3 tasks in gang unschedulable: {TAIL}"
    assert found.told == ("Warning", "Unschedulable", said)


def test_of_the_two_types_the_newer_one_holds() -> None:
    short = {**NOT, "message": LACKING, "lastTransitionTime": T1}
    ready = {**READY, "message": "", "lastTransitionTime": T2}
    found = change(group(short=LACKING), {"Pending": 3}, seen("Inqueue", short, ready))
    assert found is not None, "short again, in the same words"
    assert [c["type"] for c in found.status["conditions"]] == ["Scheduled", "Unschedulable"]
    running = seen("Running", ready, short, running=3)
    assert change(group("Running"), {"Running": 3}, running) is None


def test_counts_are_written_when_they_change() -> None:
    ready = {**READY, "message": ""}
    counts = {"Running": 2, "Succeeded": 1}
    found = change(group("Running"), counts, seen("Running", ready, running=3))
    assert found == Change({"running": 2, "succeeded": 1}, None)


def test_a_group_that_its_queue_refuses_says_so_while_it_waits_there() -> None:
    full = "queue resource quota insufficient: insufficient nvidia.com/gpu"
    known = group("Pending")
    known.gate = Admission("default/g", "QueueQuotaInsufficient", full)
    found = change(known, {}, seen("Pending"))
    assert found is not None
    (condition,) = found.status["conditions"]
    assert (condition["reason"], condition["message"]) == ("QueueQuotaInsufficient", full)
    assert found.told == ("Normal", "Unschedulable", full)
    assert waits_because(known) == f"QueueQuotaInsufficient: {full}"
    later = change(known, {"Running": 3}, seen("Running", rv=2))
    assert later is not None
    assert later.status["conditions"][0]["type"] == "Scheduled"


@pytest.mark.parametrize(
    ("fact", "shown", "admitted", "before"),
    [
        (("Pending", 5), ("Pending", 5), 0, Phase.PENDING),
        (("Pending", 5), ("Pending", 5), 7, Phase.INQUEUE),
        (("", 5), ("", 5), 7, Phase.INQUEUE),
        (("Pending", 5), ("Running", 6), 7, Phase.RUNNING),
        (("Running", 6), ("Inqueue", 5), 7, Phase.RUNNING),
        # sent back, which the log does not tell yet: it has to pass the gate again
        (("Running", 5), ("Pending", 6), 7, Phase.PENDING),
        (("made-up", 5), ("made-up", 5), 0, Phase.NEW),
    ],
)
def test_the_phase_before(
    fact: tuple[str, int], shown: tuple[str, int], admitted: int, before: Phase
) -> None:
    known = group(fact[0], rv=fact[1], admitted=admitted)
    assert phase_before(known, seen(shown[0], rv=shown[1])) is before


def test_members_hear_the_state_of_their_group() -> None:
    assert waits_because(group(short=LACKING)) == TAIL == tail_of(LACKING)
    assert waits_because(group()) == ""
    assert tail_of("no colon") == "no colon"


def test_every_status_can_be_counted() -> None:
    """A group of one pod in each status has a phase; no status is forgotten."""
    names: Sequence[str] = [status.value for status in Status]
    found = change(group(), dict.fromkeys(names, 1), seen(), members=9)
    assert found is not None
    assert {k: v for k, v in found.status.items() if isinstance(v, int)} == {
        "running": 1,
        "succeeded": 1,
        "failed": 1,
    }


def test_a_group_that_runs_is_not_unschedulable_any_more() -> None:
    was = {**NOT, "message": LACKING, "lastTransitionTime": T1, "transitionID": "other"}
    found = change(group(), {"Running": 3}, seen("Inqueue", was))
    assert found is not None
    times = {"lastTransitionTime": T2, "transitionID": "allotment-9"}
    after = [{**was, "status": "False", **times}, {**READY, "message": "", **times}]
    assert found.status["conditions"] == after
    running = seen("Running", *after, running=3)
    assert change(group("Running"), {"Running": 3}, running) is None
