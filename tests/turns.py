"""Turns of device plugins as the binder counts them."""

from allotment_binder.bind_times import BindTimes


def counted(times: BindTimes) -> tuple[int, int]:
    """How many turns were counted, and their sum in microseconds."""
    turns = next(h for h in times.histograms() if h.name.startswith("allot_acknowledgement"))
    rows = list(turns.rows.values())
    return sum(row.cumulative()[-1] for row in rows), sum(row.sum_us for row in rows)
