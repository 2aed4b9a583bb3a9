"""The sections of an explanation on a screen: tables and sentences made from the JSON structs."""

from collections.abc import Sequence

from allotment.adapters.service.moments import local_text
from allotment.core.explain.rows.amounts import compute_text
from allotment.core.explain.rows.schema import (
    Candidate,
    Closest,
    Explanation,
    Line,
    NodeSteps,
    Request,
    Step,
)
from allotment.core.explain.rows.words import (
    decided_by_text,
    holder_text,
    near_words,
    step_text,
)
from allotment.core.units import bytes_text, duration_text, points_text
from allotment_cli.show.output import Prose, table

TIMELINE_SHOWN = 14
CANDIDATES_SHOWN = 3


def competition(found: Explanation, everything: bool) -> list[str]:
    first = found.funnel[0].left if found.funnel else found.candidates_total
    shown = found.candidates if everything else found.candidates[:CANDIDATES_SHOWN]
    terms = list(found.candidates[0].terms)
    fit = found.candidates_total
    nodes, fits = "node" if first == 1 else "nodes", "fits" if fit == 1 else "fit"
    lines = [f"  {first} {nodes} -> {fit} {fits} -> 1 chosen"]
    headers = ["RANK", "CARDS", "FREE BEFORE", "FREE AFTER", *terms, "TOTAL", ""]
    rows = [_candidate(candidate, terms) for candidate in shown]
    lines += table(headers, rows, right=headers[:1] + headers[2:-1], indent="  ")
    more = found.candidates_total - len(shown)
    if more > 0:
        hint = "" if everything else ": --all"
        lines.append(f"  {more} more{hint}")
    if found.decided_by is not None:
        lines.append(Prose(f"  {decided_by_text(found.decided_by)}", 2))
    return lines


def _candidate(candidate: Candidate, terms: Sequence[str]) -> list[str]:
    cards = ",".join(candidate.devices)
    has_cards = bool(cards)
    has_memory = has_cards and candidate.free_before_bytes > 0
    return [
        str(candidate.rank),
        f"{candidate.node}/{cards}" if has_cards else candidate.node,
        bytes_text(candidate.free_before_bytes) if has_memory else "",
        bytes_text(candidate.free_after_bytes) if has_memory else "",
        *(points_text(candidate.terms.get(term, 0)) for term in terms),
        points_text(candidate.total_micro),
        "chosen" if candidate.chosen else "",
    ]


def rejected(funnel: Sequence[Step]) -> list[str]:
    reasons: dict[str, int] = {}
    for step in funnel:
        for code, count in step.reasons.items():
            reasons[code] = reasons.get(code, 0) + count
    counted = sorted(reasons.items(), key=lambda item: (-item[1], item[0]))
    lost = sum(reasons.values())
    text = ", ".join(f"{code} {count}" for code, count in counted)
    return [Prose(f"  {lost} of {funnel[0].left} rejected: {text}", 4)]


def funnel(funnel: Sequence[Step], request: Request) -> list[str]:
    rows = [
        [
            step_text(step, request),
            str(step.left),
            str(step.lost) if step.lost else "",
            ", ".join(f"{code} {count}" for code, count in step.reasons.items()),
        ]
        for step in funnel
        if step.lost or step.step == "all"
    ]
    lines = table(["STEP", "LEFT", "LOST", "REASON"], rows, right=("LEFT", "LOST"), indent="  ")
    return [line.removesuffix("  -").rstrip().removesuffix("  -").rstrip() for line in lines]


def closest(closest: Sequence[Closest]) -> list[str]:
    rows = []
    for entry in closest:
        near = near_words(entry)
        holders = [holder_text(holder, entry.compute_whole) for holder in entry.holders] or [""]
        rows.append(
            [
                f"{entry.node}/{entry.device}",
                near.free,
                near.free_compute,
                near.short,
                holders[0],
            ]
        )
        rows += [[" ", " ", " ", " ", holder] for holder in holders[1:]]
    headers = ["CARD", "FREE", "FREE COMPUTE", "SHORT BY", "HELD BY"]
    return table(headers, rows, right=("FREE", "FREE COMPUTE"), indent="  ")


def node(steps: NodeSteps) -> list[str]:
    rows = [[step.step, step.verdict, step.detail] for step in steps.host]
    lines = [f"  Verdict: {steps.verdict}", ""]
    lines += table(["STEP", "VERDICT", "DETAIL"], rows, indent="  ")
    if steps.cards:
        cards = [
            [
                card.device,
                card.model,
                str(card.free_slots),
                bytes_text(card.free_memory_bytes) if card.memory_bytes else "",
                compute_text(card.free_compute_percent, card.compute_whole),
                card.verdict + ", chosen" * card.chosen,
                "; ".join(holder_text(holder, card.compute_whole) for holder in card.holders),
            ]
            for card in steps.cards
        ]
        free = "FREE SHARES", "FREE", "FREE COMPUTE"
        headers = ["CARD", "MODEL", *free, "VERDICT", "HELD BY"]
        lines += ["", *table(headers, cards, right=free, indent="  ")]
    return lines


def timeline(timeline: Sequence[Line], everything: bool) -> list[str]:
    """The lines of a story; the scheduler's own steps, and who says a line, only if asked for."""
    told = [line for line in timeline if everything or not line.detail]
    shown = told if everything else told[-TIMELINE_SHOWN:]
    headers = ["TIME", "OFFSET", "SEQ", *(["BY"] if everything else []), "WHAT"]
    rows = [
        [
            local_text(line.time_ms, millis=True),
            _offset(line.offset_ms),
            str(line.seq or ""),
            *([line.by] if everything else []),
            line.text,
        ]
        for line in shown
    ]
    first, *rest = table(headers, rows, right=("OFFSET", "SEQ"), indent="  ")
    hidden = len(told) - len(shown)
    lines = [f"  {hidden} earlier: --all"] if hidden else []
    return [first, *lines, *rest]


def _offset(ms: int) -> str:
    return f"+{duration_text(ms)}" if ms >= 0 else f"-{duration_text(-ms)}"
