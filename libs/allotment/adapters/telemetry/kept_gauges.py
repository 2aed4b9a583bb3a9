"""Gauges with very many rows on the page of `/metrics`: their text is kept, and written in slices.

prometheus_client makes an object of every row and then its text: one and a half seconds for the
cards of a thousand nodes, in which a service answers no other request. So the rows of these gauges
are written here, in the same bytes, where something changed only, and never for long at a time.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Protocol

import anyio
from prometheus_client.utils import floatToGoString

from allotment.core.metrics.cards import Gauge

SLICE_S = 0.002
"""So long at a time is written. As long others have their turn after it."""
_TEXTS_AT_A_TIME = 512

_value_text = lru_cache(maxsize=1 << 14)(floatToGoString)
_ESCAPED = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})


class Kept(Protocol):
    """Gauges whose rows are kept as text, such as `KeptCards`."""

    def known(self) -> Sequence[Gauge]:
        """All of them, without rows."""

    def changed(self) -> Sequence[str]:
        """What to look at again."""

    def look_at(self, name: str) -> None:
        """Write down one of these as it is now."""

    def pages(self) -> Iterator[tuple[Gauge, Sequence[bytes]]]:
        """Each gauge and the text of its rows, in parts."""


def lines_of(gauge: Gauge) -> bytes:
    """The rows of a gauge, a line each: the same in Prometheus' text format and in OpenMetrics."""
    rows, divisor = gauge.rows, gauge.divisor
    if not rows:
        return b""
    line, order = _line_of(gauge.name, gauge.labels)
    return "".join(
        [
            line
            % (
                *[_escaped(values[at]) for at in order],
                _value_text(value if divisor == 1 else value / divisor),
            )
            for values, value in rows.items()
        ]
    ).encode()


@lru_cache
def _line_of(name: str, labels: tuple[str, ...]) -> tuple[str, tuple[int, ...]]:
    """How a row is written, and the places of its label values in the order of the labels' names,
    which is that of prometheus_client."""
    if not labels:
        return f"{name} %s\n", ()
    order = tuple(sorted(range(len(labels)), key=labels.__getitem__))
    named = ",".join(f'{labels[at]}="%s"' for at in order)
    return f"{name}{{{named}}} %s\n", order


def _escaped(value: str) -> str:
    if '"' in value or "\\" in value or "\n" in value:
        return value.translate(_ESCAPED)
    return value


async def keep_up(kept: Kept, now_s: Callable[[], float] = time.perf_counter) -> None:
    """Write down what changed until now. Others have their turn every `SLICE_S`."""
    began_s = now_s()
    for name in kept.changed():
        if now_s() - began_s > SLICE_S:
            await anyio.sleep(SLICE_S)
            began_s = now_s()
        kept.look_at(name)


def joined(
    pages: Iterator[tuple[Gauge, Sequence[bytes]]], heading: Callable[[Gauge], bytes]
) -> list[list[bytes]]:
    """The pages with their headings, as they are now, in portions that are quickly joined."""
    portions: list[list[bytes]] = []
    for gauge, texts in pages:
        portions.append([heading(gauge)])
        portions += [
            list(texts[at : at + _TEXTS_AT_A_TIME]) for at in range(0, len(texts), _TEXTS_AT_A_TIME)
        ]
    return portions
