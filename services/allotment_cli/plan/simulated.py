"""Runs of `allot simulate` in tables: one row a run, the mean of many, and which pods differ."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean, stdev

from allotment.core.units import duration_text
from allotment_cli.show.output import table
from allotment_lab.simulate.policies import KEPT
from allotment_lab.simulate.report import RunReport, Starts

NAMES_SHOWN = 6


def lines(reports: Sequence[RunReport]) -> list[str]:
    """One row a run, the means of several seeds, then what was refused and why."""
    out = _runs(reports)
    if is_repeated(reports):
        out += ["", *summary(reports)]
    if refused := _refused(reports):
        out += ["", *refused]
    return out


def is_repeated(reports: Sequence[RunReport]) -> bool:
    """Whether there are runs of several seeds."""
    return any(found.seed != reports[0].seed for found in reports)


def _runs(reports: Sequence[RunReport]) -> list[str]:
    first = reports[0]
    headers = ["POLICY", "SEED", "ARRIVED %", "ALLOCATED %", "UNALLOCATED CARDS", "IDLE CARDS"]
    headers += ["FRAGMENTED %", "PLACED", "REFUSED", "DECISIONS/CPU-S"]
    is_churn = first.mode == "churn"
    if is_churn:
        headers += ["PEAK %", "WAIT P50", "WAIT P99"]
    has_evictions = any(found.evicted for found in reports)
    if has_evictions:
        headers.append("EVICTED")
    names = shown(_by_policy(reports))
    rows = [[names[found.policy], *_row(found, is_churn)] for found in reports]
    if has_evictions:
        for row, found in zip(rows, reports, strict=True):
            row.append(f"{found.evicted:,}")
    out = [f"{cluster(first)}; {_MODES[first.mode]}"]
    return out + table(headers, rows, right=headers[1:])


def _refused(reports: Sequence[RunReport]) -> list[str]:
    """The reasons of refusals, the most frequent first: a column a policy, of all its runs."""
    by_policy = _by_policy(reports)
    counts: dict[str, Counter[str]] = {policy: Counter() for policy in by_policy}
    for found in reports:
        counts[found.policy].update(found.refusals)
    total = sum(counts.values(), Counter())
    ranked = sorted(total, key=lambda reason: (-total[reason], reason))
    columns = list(shown(by_policy).values())
    rows = [
        [reason, *(f"{of[reason]:,}" if of[reason] else "" for of in counts.values())]
        for reason in ranked
    ]
    together = ", all runs together" if is_repeated(reports) else ""
    title = f"refused, by the last obstacle{together}:"
    return [title, *table(["REASON", *columns], rows, right=columns)] if rows else []


def differences(starts: Mapping[str, Starts], seed: int) -> list[str]:
    """Which pods of one seed start later, earlier or never under each policy, compared with the
    first; those with the greatest difference first. Nothing if there is but one policy.
    """
    (first, base), *others = starts.items()
    names = shown(starts)
    rows = []
    for policy, found in others:
        kinds: dict[str, list[tuple[int, str]]] = {"never": [], "later": [], "earlier": []}
        for uid in base.keys() & found.keys():
            (name, before), (_, now) = base[uid], found[uid]
            if now is None or before is None:
                if before is not None:
                    kinds["never"].append((0, name))
                elif now is not None:
                    kinds["earlier"].append((0, f"{name} (else never)"))
            elif now != before:
                kind = "later" if now > before else "earlier"
                by_s = abs(now - before)
                kinds[kind].append((-by_s, f"{name} ({_seconds(by_s)})"))
        for kind, pods in kinds.items():
            if pods:
                listed = [name for _, name in sorted(pods)[:NAMES_SHOWN]]
                more = [f"{len(pods) - NAMES_SHOWN:,} more"] * (len(pods) > NAMES_SHOWN)
                rows.append([names[policy], kind, f"{len(pods):,}", ", ".join([*listed, *more])])
    if not others:
        return []
    title = f"pods that start at another time than under {names[first]}, or never (seed {seed}):"
    headers = ["POLICY", "STARTS", "PODS", "WHICH"]
    return [title, *(table(headers, rows, right=["PODS"]) if rows else ["none"])]


def _by_policy(reports: Sequence[RunReport]) -> dict[str, list[RunReport]]:
    runs: dict[str, list[RunReport]] = {}
    for found in reports:
        runs.setdefault(found.policy, []).append(found)
    return runs


_MODES = {
    "arrivals": "pods arrive one at a time and stay, one that does not fit is dropped",
    "churn": "pods come, wait and go; allocation, idle cards and fragmentation are means over "
    "time, waits are those of placed pods",
}


def cluster(found: RunReport) -> str:
    """`1,523 nodes, 6,212 cards`."""
    return f"{_counted(found.nodes, 'node')}, {_counted(found.cards, 'card')}"


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def _row(found: RunReport, is_churn: bool) -> list[str]:
    row = [
        str(found.seed),
        _percent(found.arrived_percent),
        _percent(found.allocation_percent),
        f"{found.unallocated_cards:,.1f}",
        f"{found.idle_cards:,}",
        _percent(found.fragmentation_percent),
        f"{found.placed:,}",
        f"{found.refused:,}",
        "" if (rate := found.decisions_per_cpu_second) is None else f"{rate:,}",
    ]
    if is_churn:
        row.append(_percent(found.peak_allocation_percent))
        row += [_seconds(found.wait_p50_s), _seconds(found.wait_p99_s)]
    return row


def _percent(percent: float) -> str:
    """As every table and drawing shows it."""
    return f"{percent:.2f}"


def _seconds(wait_s: int | None) -> str:
    if wait_s is None:
        return ""
    return f"{wait_s} s" if wait_s < 60 else duration_text(1000 * wait_s)


def summary(reports: Sequence[RunReport]) -> list[str]:
    """Mean and spread (sample standard deviation) of each policy's runs."""
    by_policy = _by_policy(reports)
    names = shown(by_policy)
    rows = []
    for policy, runs in by_policy.items():
        allocated = [found.allocation_percent for found in runs]
        rows.append(
            [
                names[policy],
                f"{runs[0].seed}-{runs[-1].seed}",
                _percent(fmean(allocated)),
                _percent(stdev(allocated)) if len(runs) > 1 else "",
                _percent(min(allocated)),
                _percent(max(allocated)),
                f"{fmean(found.unallocated_cards for found in runs):,.1f}",
                _percent(fmean(found.fragmentation_percent for found in runs)),
                f"{fmean(found.refused for found in runs):,.0f}",
            ]
        )
    headers = ["POLICY", "SEEDS", "ALLOCATED %", "STD DEV", "LEAST", "MOST"]
    headers += ["UNALLOCATED CARDS", "FRAGMENTED %", "REFUSED"]
    return ["mean of the runs:", *table(headers, rows, right=headers[1:])]


def shown(names: Iterable[str]) -> dict[str, str]:
    """Policies by name as tables and drawings show them: a file without the folders that it is in,
    unless another policy is called the same.
    """
    short = {name: name if name in KEPT else Path(name).name for name in names}
    taken = Counter([*KEPT, *(short[name] for name in short if name not in KEPT)])
    return {name: word if taken[word] == 1 else name for name, word in short.items()}
