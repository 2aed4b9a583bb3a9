"""The sections of an explanation on a screen: tables and sentences made from the JSON structs."""

from collections.abc import Sequence

from allotment.core.explain.schema import (
    Candidate,
    Closest,
    DecidedBy,
    Explanation,
    Holder,
    Line,
    NodeSteps,
    Request,
    Step,
)
from allotment.core.explain.views import asked_whole
from allotment.core.reasons import NO_FITTING_INSTANCE
from allotment.core.units import bytes_text, cpu_text, duration_text, points_text
from allotment_cli.amounts import compute_text
from allotment_cli.moments import local_text
from allotment_cli.output import Prose, table

TIMELINE_SHOWN = 14
CANDIDATES_SHOWN = 3


def competition(found: Explanation, everything: bool) -> list[str]:
    first = found.funnel[0].left if found.funnel else found.candidates_total
    shown = found.candidates if everything else found.candidates[:CANDIDATES_SHOWN]
    terms = list(found.candidates[0].terms)
    lines = [f"  {first} nodes -> {found.candidates_total} fit -> 1 chosen"]
    headers = ["RANK", "CARDS", "FREE BEFORE", "FREE AFTER", *terms, "TOTAL", ""]
    rows = [_candidate(candidate, terms) for candidate in shown]
    named = table(headers, rows, right=headers[:1] + headers[2:-1], indent="  ")
    lines += [line.removesuffix("  -").rstrip() for line in named]
    more = found.candidates_total - len(shown)
    if more > 0:
        hint = "" if everything else ": --all"
        lines.append(f"  {more} more{hint}")
    if found.decided_by is not None:
        lines.append(Prose(f"  {_decided_by(found.decided_by)}", 2))
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


def _decided_by(by: DecidedBy) -> str:
    match by.term:
        case "only":
            return "Nothing else fitted."
        case "leftover":
            return f"Equal scores with {by.second}; it leaves less memory unused on its cards."
        case "name":
            return f"Equal scores and equal leftovers with {by.second}; the name comes first."
        case _:
            winner, second = by.winner_without_micro or 0, by.second_without_micro or 0
            won = f"Won by {points_text(by.lead_micro)}."
            with_ = f"{points_text(max(winner, second))} to {points_text(min(winner, second))}"
            if second > winner:
                said = f"Deciding term: {by.term} (without it, {by.second} wins {with_})."
            elif second == winner:
                said = f"Deciding term: {by.term} (without it, a tie at {points_text(winner)})."
            else:
                said = f"Most of it: {by.term} (without it, still ahead {with_})."
            if by.term == "fit":
                said += f" {by.second} would give away more of its cards than is asked for."
            return f"{won} {said}"


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
            _step_text(step, request),
            str(step.left),
            str(step.lost) if step.lost else "",
            ", ".join(f"{code} {count}" for code, count in step.reasons.items()),
        ]
        for step in funnel
        if step.lost or step.step == "all"
    ]
    lines = table(["STEP", "LEFT", "LOST", "REASON"], rows, right=("LEFT", "LOST"), indent="  ")
    return [line.removesuffix("  -").rstrip().removesuffix("  -").rstrip() for line in lines]


def _step_text(step: Step, request: Request) -> str:
    """The step in the words of this very request, where it has some."""
    if step.step == "gpuModel" and request.models:
        return f"has a card of model {' or '.join(request.models)}"
    if step.step == "gpuMemory" and set(step.reasons) == {NO_FITTING_INSTANCE}:
        return "a card with a free piece that is large enough"
    if step.step == "gpuMemory" and request.memory_bytes:
        return f"enough cards with {bytes_text(request.memory_bytes)} unreserved"
    if step.step == "gpuCompute":
        in_cores = not request.mode and not all(asked_whole(a.family) for a in request.devices)
        compute = compute_text(max(request.compute_percent, 1), 0 if in_cores else 100)
        return f"those cards also have {compute}" + " compute" * (not in_cores)
    return step.text


def closest(closest: Sequence[Closest]) -> list[str]:
    rows = []
    for entry in closest:
        counted = entry.free_count is not None
        holders = [_holder(holder, entry.compute_whole) for holder in entry.holders] or [""]
        free = _free_count(entry) if counted else _free_memory(entry)
        compute = compute_text(entry.free_compute_percent or 0, entry.compute_whole)
        compute = "" if counted or entry.free_compute_percent is None else compute
        rows.append([f"{entry.node}/{entry.device}", free, compute, _short(entry), holders[0]])
        rows += [[" ", " ", " ", " ", holder] for holder in holders[1:]]
    headers = ["CARD", "FREE", "FREE COMPUTE", "SHORT BY", "HELD BY"]
    return table(headers, rows, right=("FREE", "FREE COMPUTE"), indent="  ")


def _free_count(entry: Closest) -> str:
    count = entry.free_count or 0
    return cpu_text(count) if "cpuMilli" in entry.short else str(count)


def _free_memory(entry: Closest) -> str:
    """Of chips whose memory is not given out by amount there is nothing to say."""
    if (
        entry.compute_whole != 100
        and not entry.free_memory_bytes
        and "memoryBytes" not in entry.short
    ):
        return ""
    return bytes_text(entry.free_memory_bytes or 0)


def _short(entry: Closest) -> str:
    return ", ".join(_lack_text(name, n, entry.compute_whole) for name, n in entry.short.items())


def _lack_text(name: str, amount: int, whole: int) -> str:
    match name:
        case "memoryBytes":
            return f"{bytes_text(amount)} memory"
        case "computePercent":
            return compute_text(amount, whole) + " compute" * (whole == 100)
        case "cpuMilli":
            return f"{cpu_text(amount)} CPU"
        case "cards":
            return f"{amount} card{'s' * (amount > 1)}"
        case "instances":
            return "no free piece that is large enough"
        case "slots":
            return f"{amount} share{'s' * (amount > 1)}"
        case "otherHolders":
            return f"{amount} other holder{'s' * (amount > 1)}"
        case _:
            return str(amount)


def _holder(holder: Holder, whole: int = 100) -> str:
    piece = f" [{holder.instance}]" if holder.instance else ""
    if not holder.memory_bytes:
        return f"{holder.namespace}/{holder.name}{piece}"
    words = [bytes_text(holder.memory_bytes)]
    if whole == 100 or holder.compute_percent:
        words.append(compute_text(holder.compute_percent, whole))
    return f"{holder.namespace}/{holder.name} {', '.join(words)}{piece}"


def node(steps: NodeSteps) -> list[str]:
    rows = [[step.step, step.verdict, step.detail] for step in steps.host]
    lines = [f"  the node answers: {steps.verdict}", ""]
    lines += table(["STEP", "VERDICT", "DETAIL"], rows, indent="  ")
    if steps.cards:
        cards = [
            [
                card.device,
                card.model,
                str(card.free_slots),
                bytes_text(card.free_memory_bytes) if card.memory_bytes else "",
                compute_text(card.free_compute_percent, card.compute_whole),
                card.verdict,
                "; ".join(_holder(holder, card.compute_whole) for holder in card.holders),
            ]
            for card in steps.cards
        ]
        headers = ["CARD", "MODEL", "SHARES", "FREE", "COMPUTE", "VERDICT", "HELD BY"]
        lines += ["", *table(headers, cards, right=("SHARES", "FREE", "COMPUTE"), indent="  ")]
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
    return [first, *lines, *(Prose(line, first.index("WHAT")) for line in rest)]


def _offset(ms: int) -> str:
    return f"+{duration_text(ms)}" if ms >= 0 else f"-{duration_text(-ms)}"
