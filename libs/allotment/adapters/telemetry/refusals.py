"""Objects, messages and records that a service refused, each for itself: counted, named, bounded.

One object harms only itself. Code that accepts something from outside (a Kubernetes object, a
message, a record of a lease or of the log) turns whatever goes wrong with it into one call of
`refuse`, and continues with the next. It is reported to people: a count by door and kind
for alarms, a line in the log that names the object and the cause, and the objects that stand
refused now on `/readyz`. A service that refuses an object is still ready.
"""

import time
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from allotment.adapters.telemetry.log import Logger
from allotment.adapters.telemetry.metrics import ServiceMetrics

LINES_AT_ONCE = 20
LINE_EVERY_S = 1.0
"""So many lines may come at once, then one in so long: a flood of odd objects fills no disk."""
STANDING_MAX = 1000
SHOWN_MAX = 20
CAUSE_CHARS_MAX = 300


class Refusal(NamedTuple):
    """What was refused: `kind` at `door`, and why. What has no uid or namespace leaves it empty."""

    door: str
    kind: str
    namespace: str
    name: str
    uid: str
    cause: str

    def text(self) -> str:
        """In one line; names are quoted, as they may hold anything."""
        place = f"{self.namespace}/{self.name}" if self.namespace else self.name
        uid = f" (uid {self.uid!r})" if self.uid else ""
        return f"{self.kind} {place!r}{uid}: {self.cause}"


class Refusals:
    """The refusals of one service. `total` counts them by door and kind."""

    def __init__(self, log: Logger, clock: Callable[[], float] = time.monotonic) -> None:
        self.total: Counter[tuple[str, ...]] = Counter()
        self._log = log
        self._clock = clock
        self._standing: dict[tuple[str, str, str, str], Refusal] = {}
        self._lines = float(LINES_AT_ONCE)
        self._refilled_s = clock()
        self._unlogged = 0

    def refuse(
        self,
        door: str,
        kind: str,
        error: Exception | str,
        *,
        namespace: str = "",
        name: str = "",
        uid: str = "",
        stands: bool = False,
    ) -> None:
        """Count and log that something was refused. `stands`: until `accept` is called for it."""
        cause = error if isinstance(error, str) else f"{type(error).__name__}: {error}"
        cause = " ".join(cause.split())[:CAUSE_CHARS_MAX]
        refusal = Refusal(door, kind, namespace, name, uid, cause)
        self.total[(door, kind)] += 1
        if stands:
            place = (door, kind, namespace, name)
            if self._standing.pop(place, None) == refusal:
                self._standing[place] = refusal
                return  # a list shows it again and again
            self._standing[place] = refusal
            if len(self._standing) > STANDING_MAX:
                del self._standing[next(iter(self._standing))]
        self._say(refusal, error)

    def accept(self, door: str, kind: str, namespace: str, name: str) -> None:
        """An object was read, or is gone: it is no longer refused."""
        if self._standing:
            self._standing.pop((door, kind, namespace, name), None)

    def standing(self) -> list[Refusal]:
        """What is refused now, as far as it is remembered."""
        return list(self._standing.values())

    def shown(self) -> list[str]:
        """What is refused now, in lines for people; the newest first."""
        newest = self.standing()[::-1]
        shown = [refusal.text() for refusal in newest[:SHOWN_MAX]]
        return [*shown, f"and {len(newest) - SHOWN_MAX} more"] if newest[SHOWN_MAX:] else shown

    def expose(self, metrics: ServiceMetrics) -> None:
        metrics.expose(
            "allot_refused_total",
            "objects, messages and records that were refused because of what they hold",
            lambda: dict(self.total),
            labels=("door", "kind"),
            kind="counter",
        )
        metrics.expose(
            "allot_refused_objects",
            "objects that are there and stand refused now, by door and kind",
            lambda: Counter((r.door, r.kind) for r in self._standing.values()),
            labels=("door", "kind"),
        )

    def _say(self, refusal: Refusal, error: Exception | str) -> None:
        now_s = self._clock()
        self._lines += (now_s - self._refilled_s) / LINE_EVERY_S
        self._lines, self._refilled_s = min(self._lines, float(LINES_AT_ONCE)), now_s
        if self._lines < 1.0:
            self._unlogged += 1
            return
        self._lines -= 1.0
        fields = {name: value for name, value in refusal._asdict().items() if value}
        if self._unlogged:
            fields["unlogged"] = self._unlogged
            self._unlogged = 0
        self._log.warning("refused; everything else continues", **fields)
        if isinstance(error, Exception):
            self._log.debug("what the refusal stands on", error=error)
