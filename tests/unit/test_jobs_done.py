"""What has succeeded stays done when its pod is cleaned away."""

import msgspec
import pytest

from allotment.core.jobs.model import Job
from allotment.core.jobs.seats import Seat
from allotment.core.jobs.sync import Plan
from tests.unit.jobs_parts import at, group, job, look, phase_in, pod, task

TWO = (task("prep", 3), task("work", 1))


def after(before: Job, made: Plan) -> Job:
    """The Job with the status that a plan writes."""
    status = msgspec.to_builtins(before.status)
    for field, value in made.status.items():
        if isinstance(value, dict) and isinstance(status.get(field), dict):
            merged = {**status[field], **value}
            status[field] = {key: one for key, one in merged.items() if one is not None}
        else:
            status[field] = value
    return msgspec.structs.replace(before, status=msgspec.convert(status, type(before.status)))


def finished() -> Job:
    """A Job two of whose tasks have succeeded, as its status says."""
    running = job(*TWO, status=at("Running"))
    pods = [pod("prep-0", "Succeeded"), pod("prep-1", "Succeeded"), pod("prep-2"), pod("work-0")]
    return after(running, look(running, *pods))


def test_its_seat_is_not_filled_again_and_it_counts() -> None:
    known = finished()
    assert (known.status.controlled_resources or {})["done-prep"] == "0-1"
    made = look(known, pod("prep-2"), pod("work-0"))
    assert made.create == ()
    assert made.end == ()
    assert "succeeded" not in made.status, "it says 2 already"
    over = look(known, pod("prep-2", "Succeeded"), pod("work-0", "Succeeded"))
    assert phase_in(over, known) == "Completed"


def test_one_that_failed_or_ran_is_made_again() -> None:
    known = finished()
    made = look(known)
    assert made.create == (Seat("prep", 2), Seat("work", 0))


def test_nobody_waits_for_it_in_the_gang() -> None:
    known = finished()
    made = look(known, pod("prep-2"), pod("work-0"), group=group(known))
    assert made.group_changes["minMember"] == 2
    assert made.group_changes["minTaskMember"] == {"prep": 1, "work": 1}


@pytest.mark.parametrize(
    ("command", "again"),
    [
        ("RestartJob", [Seat("prep", 0), Seat("prep", 1), Seat("prep", 2), Seat("work", 0)]),
        ("", []),
    ],
)
def test_a_restart_of_the_job_begins_anew(command: str, again: list[Seat]) -> None:
    known = finished()
    made = look(known, pod("prep-2"), pod("work-0"), command=command)
    if not command:
        assert made.create == ()
        return
    restarted = after(known, made)
    assert "done-prep" not in (restarted.status.controlled_resources or {})
    restarting = look(restarted)
    pending = after(restarted, restarting)
    assert list(look(pending, group=group(pending)).create) == again


def test_what_scaling_down_takes_away_is_forgotten() -> None:
    running = job(task("prep", 1), task("work", 1), status=msgspec.to_builtins(finished().status))
    made = look(running, pod("work-0"))
    assert made.create == ()
    assert (after(running, made).status.controlled_resources or {})["done-prep"] == "0"


def test_what_is_written_there_by_others_does_no_harm() -> None:
    for text in ("", "x", "3-1", "-", "0-99999999999999999999", "1,,2", "²"):
        status = at("Running", controlledResources={"done-prep": text, "done-nobody": "0"})
        made = look(job(task("prep", 1), status=status))
        assert made.create == (Seat("prep", 0),)
