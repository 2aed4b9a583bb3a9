"""Pods' traces, exported while the log is followed: one trace a pod, made from records.

    traces = PodTraces(tracer, sampling)
    fold.restored.append(lambda seq, image: traces.start_from(fold.state))
    fold.listeners.append(lambda record, envelope: traces.follow(record, envelope, fold.state))
    await fold.caught_up.wait()
    await traces.run(lambda: fold.state, fold.changed)    # exports what becomes final from now on

Nothing here can delay decisions: it runs next to the pages of the inspector, a few pods at a
turn, and the spans go to the tracer's bounded queue, where a receiver that is slow or gone costs
spans, which are counted. Everything is made from the log alone: what was lost, not sampled or over
before the start is exported at any time with `allot trace POD --export`, as the same spans with the
same ids; only links to the pods before and after it are more.

Every pod is exported up to FULL_PODS_PER_S pods that decisions are made about; while there are more
one in a hundred, by its uid. Pods that were refused, retried, evicted or slow, or ended badly, are
exported always. `OTEL_TRACES_SAMPLER` (`traceidratio`, `always_on`, also `parentbased_…`) puts a
ratio of its own in the place of that; with `always_off` nothing is exported.
"""

from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import anyio.lowlevel
import msgspec

from allotment.adapters.telemetry.pod_traces import readable
from allotment.adapters.telemetry.traces import TelemetryError, Tracer
from allotment.core.explain.history.lives import Lives
from allotment.core.ledger.model import ClusterState
from allotment.core.logport import Record
from allotment.core.trace_ids import trace_id
from allotment_proto.events import Decided, Envelope

FULL_PODS_PER_S: Final = 100
BUSY_RATIO: Final = 0.01
_METER_S: Final = 10
"""Over so many seconds of the log's clock the pods are counted that decisions are made about."""
_RANDOM_DIGITS: Final = 14
"""Of a trace's id that many hexadecimal digits at its end vary evenly: W3C Trace Context 2."""
_PODS_A_TURN: Final = 8
_PODS_AT_THE_END: Final = 1_000
_DELAYED_PODS_MAX: Final = 2_000
_DELAY_S: Final = 0.05
_NS_PER_MS: Final = 1_000_000


class Sampling:
    """Which pods' traces are exported of those that were simply placed: by their uids."""

    def __init__(self, ratio: float | None = None) -> None:
        """A `ratio` holds whatever the load; without one it follows from the load."""
        self._ratio = ratio
        self._counted: deque[tuple[int, int]] = deque()
        """Seconds of the log's clock, and how many pods were decided about in each."""
        self._pods = 0

    def note(self, time_ms: int, pods: int) -> None:
        """A decision was made about so many pods."""
        second = time_ms // 1000
        self._counted.append((second, pods))
        self._pods += pods
        while self._counted[0][0] <= second - _METER_S:
            self._pods -= self._counted.popleft()[1]

    @property
    def ratio(self) -> float:
        if self._ratio is not None:
            return self._ratio
        return 1.0 if self._pods <= FULL_PODS_PER_S * _METER_S else BUSY_RATIO

    def chooses(self, uid: str) -> bool:
        """The same for the same uid as long as the ratio is: a larger one takes more, none less."""
        varies = int(trace_id(uid)[-_RANDOM_DIGITS:], 16)
        return varies < self.ratio * 16**_RANDOM_DIGITS


def sampling_of(environ: Mapping[str, str]) -> Sampling | None:
    """As the standard variables say; None where nothing is to be exported.

    Raises `TelemetryError` for a ratio that is none.
    """
    name = environ.get("OTEL_TRACES_SAMPLER", "").lower().removeprefix("parentbased_")
    if name == "always_off":
        return None
    if name == "always_on":
        return Sampling(1.0)
    if name != "traceidratio":
        return Sampling()
    raw = environ.get("OTEL_TRACES_SAMPLER_ARG") or "1.0"
    try:
        ratio = msgspec.convert(raw, float, strict=False)
    except msgspec.ValidationError:
        ratio = -1.0
    if not 0 <= ratio <= 1:
        raise TelemetryError(
            f"OTEL_TRACES_SAMPLER_ARG={raw!r}: expected a number from 0 to 1, such as 0.01"
        )
    return Sampling(ratio)


class PodTraces:
    """Follows the log, and gives what is final of pods' traces to a tracer.

    What was final when `run` began is history, and taken as exported; of pods that were under way
    the rest follows. `spans` counts what was handed over.
    """

    def __init__(
        self,
        tracer: Tracer,
        sampling: Sampling,
        delayed_max: int = _DELAYED_PODS_MAX,
        on_failed: Callable[[Exception], None] = lambda error: None,
    ) -> None:
        """While the tracer's queue fills, the parts of `delayed_max` pods wait; others are handed
        over anyway, and lost if there is no room.
        """
        self.lives = Lives(sampling.chooses, None)
        self.spans = 0
        self._is_begun = False
        self._delayed_max = delayed_max
        self._on_failed = on_failed
        self._tracer = tracer
        self._sampling = sampling
        self._time_ms = 0

    def start_from(self, state: ClusterState) -> None:
        """Records follow onto this state, of a snapshot: the past of its pods is unknown here."""
        self.lives.pass_by(state.pods)

    def follow(self, record: Record, envelope: Envelope, state: ClusterState) -> None:
        """A record that has just taken effect on `state`."""
        self._time_ms = record.time_ns // _NS_PER_MS
        for event in envelope.events:
            if isinstance(event, Decided):
                self._sampling.note(self._time_ms, len(event.batch))
        self.lives.follow(record.seq, self._time_ms, envelope, state)
        if not self._is_begun:  # what is over may not be kept
            self.hand_over(state, self.lives.waiting)

    def hand_over(self, state: ClusterState, most: int = _PODS_A_TURN) -> None:
        """Hand over what is due of so many pods."""
        for _ in range(min(most, self.lives.waiting)):
            try:
                for part in self.lives.parts(state, self._time_ms, 1):
                    self._tracer.hand_over(readable(part.spans))
                    self.spans += len(part.spans)
            except Exception as error:  # whatever it is: of this pod, and not of the next
                self._on_failed(error)

    async def run(
        self, state: Callable[[], ClusterState], changed: Callable[[], Awaitable[None]]
    ) -> None:
        """Hand over for ever, a few pods at a turn; `changed` waits for the next records."""
        self.lives.begin_after(state().seq)
        self._is_begun = True
        try:
            while True:
                while self.lives.waiting:
                    if self._tracer.is_filling and self.lives.waiting <= self._delayed_max:
                        await anyio.sleep(_DELAY_S)
                    else:
                        self.hand_over(state())
                        await anyio.lowlevel.checkpoint()
                await changed()
        finally:
            self.hand_over(state(), _PODS_AT_THE_END)
