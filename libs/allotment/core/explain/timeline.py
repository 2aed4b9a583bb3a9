"""A pod's story in lines: who did what when, counted from when the pod was first seen.

Stages of a cycle carry the clocks of their services, records the clock of the log.
"""

from collections.abc import Iterator

from allotment.core.explain import pod_story
from allotment.core.explain.pod_story import Attempt, PodStory
from allotment.core.explain.schema import Line
from allotment.core.reasons import refusal_text
from allotment.core.units import points_text, rfc3339
from allotment_proto.events import StageTime


def timeline(story: PodStory) -> list[Line]:
    """All lines in the order of their times; equal times keep the order of the log."""
    first_ms = story.first.time_ms if story.first is not None else 0
    lines = [
        _line(first_ms, moment.time_ms, moment.by, moment.text, moment.seq)
        for moment in story.moments
    ]
    number = story.attempts_total - len(story.attempts)
    for attempt in story.attempts:
        number += 1
        lines += _attempt(first_ms, number, attempt)
    lines.sort(key=lambda line: (line.time_ms, line.seq or 0))
    return lines


def _attempt(first_ms: int, number: int, attempt: Attempt) -> Iterator[Line]:
    for stage in attempt.decided.stages:
        yield _line(
            first_ms,
            stage.finished_us // 1000,
            f"{stage.stage}/{stage.instance}",
            _stage_text(number, attempt, stage),
        )
    yield _line(first_ms, attempt.time_ms, attempt.by, _outcome_text(number, attempt), attempt.seq)


def _stage_text(number: int, attempt: Attempt, stage: StageTime) -> str:
    placement, decided = attempt.placement, attempt.decided
    if stage.stage == "filter":
        said = f"attempt {number} on ledger {decided.basis}"
        if placement is not None:
            return f"{said}: {placement.feasible}/{placement.nodes} nodes fit"
        if attempt.refusal is not None and attempt.refusal.nodes:
            return f"{said}: 0/{attempt.refusal.nodes} nodes fit"
        return said
    if stage.stage == "scorer":
        if placement is None:
            return "no place found"
        return f"best {placement.node} ({points_text(placement.score_micro)})"
    return f"asked again on ledger {decided.checked}"


def _outcome_text(number: int, attempt: Attempt) -> str:
    placement = attempt.placement
    where = placement.node if placement is not None else ""
    match attempt.outcome:
        case pod_story.PLACED:
            said = f"allocation on {where} appended"
        case pod_story.VOID:
            said = f"placement on {where} is void: facts that landed first took the room"
        case pod_story.DROPPED:
            said = f"no longer fits on {where}: {attempt.code}"
        case pod_story.REFUSED if attempt.refusal is not None:
            said = f"refused: {refusal_text(attempt.refusal).removesuffix('.')}"
        case pod_story.SHORT:
            said = f"its group waits: {attempt.code}: {attempt.message}"
        case pod_story.UNCHANGED:
            said = "refused for the same reasons"
        case _:
            said = "passed over: it did not wait any more"
    return f"attempt {number}: {said}"


def _line(first_ms: int, time_ms: int, by: str, text: str, seq: int | None = None) -> Line:
    return Line(
        time=rfc3339(time_ms),
        time_ms=time_ms,
        offset_ms=time_ms - first_ms,
        by=by,
        text=text,
        seq=seq,
    )
