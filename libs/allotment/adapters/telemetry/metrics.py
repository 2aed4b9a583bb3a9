"""Prometheus metrics of one service: its own registry, names all services share, cheap counting.

Hot code counts in plain ints and floats on its own objects; `expose` reads them at each
scrape. Only what has a distribution (a stage's duration) is recorded as it happens. Names follow
one rule: prefix `allot_`, base units, the unit last, `_total` for counters, closed label sets.
"""

import re
from collections import Counter as PlainCounter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial
from importlib.metadata import version
from itertools import islice
from typing import Any, Literal

import anyio
from prometheus_client import (
    CollectorRegistry,
    Counter,
    GCCollector,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Exemplar, Sample

from allotment.adapters.telemetry.kept_gauges import Kept, joined, keep_up
from allotment.core.metrics.cards import Gauge
from allotment.core.metrics.histograms import Example
from allotment.core.metrics.histograms import Histogram as Counted

disable_created_metrics()  # type: ignore[no-untyped-call]
"""Since when a counter counts is known from `process_start_time_seconds`: another gauge for each
would add nothing.
"""

MS_PER_S = 1000
ROWS_MAX = 5_000
"""Rows of one metric: tenants name groups and namespaces, and make as many as they like."""
_END = b"# EOF\n"
"""How a page of OpenMetrics ends."""
_ESCAPING = re.compile(r";\s*escaping=(\"[^\"]*\"|[\w-]*)")
STAGE_BUCKETS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)

_Rows = Mapping[tuple[str, ...], int | float]
Reading = int | float | _Rows
"""One value, or one for each tuple of label values."""


def _some(rows: _Rows, name: str, left_out: dict[str, int]) -> _Rows:
    """The first rows of a metric, and a note of how many there are beyond."""
    if len(rows) <= ROWS_MAX:
        left_out.pop(name, None)
        return rows
    left_out[name] = len(rows) - ROWS_MAX
    return dict(islice(rows.items(), ROWS_MAX))


class _Callback(Collector):
    """One metric whose value is asked for at scrape time."""

    def __init__(
        self,
        name: str,
        text: str,
        kind: Literal["gauge", "counter"],
        labels: Sequence[str],
        read: Callable[[], Reading],
        left_out: dict[str, int],
    ) -> None:
        self._left_out = left_out
        self._name = name
        self._text = text
        self._kind = kind
        self._labels = labels
        self._read = read

    def describe(self) -> Iterator[CounterMetricFamily | GaugeMetricFamily]:
        """The name alone, so that registering asks for no value."""
        yield self._family()

    def collect(self) -> Iterator[CounterMetricFamily | GaugeMetricFamily]:
        family = self._family()
        reading = self._read()
        rows: _Rows = reading if isinstance(reading, Mapping) else {(): reading}
        for values, value in _some(rows, self._name, self._left_out).items():
            family.add_metric(values, value)
        yield family

    def _family(self) -> CounterMetricFamily | GaugeMetricFamily:
        if self._kind == "counter":
            return CounterMetricFamily(self._name, self._text, labels=self._labels)
        return GaugeMetricFamily(self._name, self._text, labels=self._labels)


class _Gauges(Collector):
    """Many gauges that are read together at each scrape."""

    def __init__(
        self,
        read: Callable[[], Sequence[Gauge]],
        known: Sequence[Gauge],
        left_out: dict[str, int],
    ) -> None:
        self._read = read
        self._known = known
        self._left_out = left_out

    def describe(self) -> Iterator[CounterMetricFamily | GaugeMetricFamily]:
        """The names alone, so that registering asks for no value."""
        for gauge in self._known:
            yield _family(gauge)

    def collect(self) -> Iterator[CounterMetricFamily | GaugeMetricFamily]:
        for gauge in self._read():
            family = _family(gauge)
            for values, value in _some(gauge.rows, gauge.name, self._left_out).items():
                family.add_metric(values, value if gauge.divisor == 1 else value / gauge.divisor)
            yield family


def _family(gauge: Gauge) -> CounterMetricFamily | GaugeMetricFamily:
    if gauge.is_counter:
        return CounterMetricFamily(gauge.name, gauge.text, labels=gauge.labels)
    return GaugeMetricFamily(gauge.name, gauge.text, labels=gauge.labels)


class _Histograms(Collector):
    """Histograms that are counted elsewhere."""

    def __init__(self, counted: Sequence[Counted]) -> None:
        self._counted = counted

    def describe(self) -> Iterator[HistogramMetricFamily]:
        for each in self._counted:
            yield HistogramMetricFamily(each.name, each.text, labels=each.labels)

    def collect(self) -> Iterator[HistogramMetricFamily]:
        for each in self._counted:
            family = HistogramMetricFamily(each.name, each.text, labels=each.labels)
            bounds = [*map(str, each.bounds), "+Inf"]
            for values, row in list(each.rows.items()):  # a thread may add one
                buckets = [
                    _bucket(bound, count, row.examples.get(at), each.unit_us)
                    for at, (bound, count) in enumerate(zip(bounds, row.cumulative(), strict=True))
                ]
                family.add_metric(values, buckets, row.sum_us / each.unit_us)
            yield family


def _bucket(
    bound: str, count: int, example: Example | None, unit_us: int
) -> tuple[str, float] | tuple[str, float, Exemplar]:
    if example is None:
        return bound, float(count)
    labels = {"trace_id": example.trace_id, "log_seq": str(example.seq)}
    exemplar = Exemplar(labels, example.value_us / unit_us, example.at_ms / MS_PER_S)
    return bound, float(count), exemplar


class _Joint(Collector):
    """What several parts of a process count by the same names: counts are added up, and a gauge is
    the first one's.
    """

    def __init__(self, *collectors: Collector) -> None:
        self._collectors = collectors

    def describe(self) -> Iterator[Metric]:
        for collector in self._collectors:
            yield from getattr(collector, "describe", tuple)()

    def collect(self) -> Iterator[Metric]:
        families: dict[str, Metric] = {}
        for collector in self._collectors:
            for family in collector.collect():
                first = families.setdefault(family.name, family)
                if first is not family:
                    first.samples = list(_added(first, family))
        yield from families.values()


def _added(first: Metric, second: Metric) -> Iterator[Sample]:
    rows = {(s.name, *sorted(s.labels.items())): s for s in first.samples}
    for sample in second.samples:
        place = (sample.name, *sorted(sample.labels.items()))
        same = rows.setdefault(place, sample)
        if same is not sample and first.type != "gauge":
            rows[place] = same._replace(value=same.value + sample.value)
    yield from rows.values()


class _Read(Collector):
    """Metrics as they were read."""

    def __init__(self, families: Sequence[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        yield from self._families


def _heading(encoder: Callable[[Any], bytes], gauge: Gauge) -> bytes:
    """What stands above the rows of a gauge."""
    return encoder(_Read([_family(gauge)])).removesuffix(_END)


def _encoder_for(accept: str) -> tuple[Callable[[Any], bytes], str]:
    """The library's choice for an Accept header, without its wish how names are to be escaped: in
    none of ours is anything to escape, and one of the ways changes them anyway. A header that
    it cannot read says nothing."""
    try:
        return choose_encoder(_ESCAPING.sub("", accept))
    except (ValueError, TypeError):  # of a version that is no number
        return choose_encoder("")


def _names_of(collector: Collector) -> list[str]:
    """The metrics that a collector has to give."""
    return [each.name for each in getattr(collector, "describe", tuple)()]


def _name_of(collector: Collector) -> str:
    """The first of them."""
    return next(iter(_names_of(collector)), type(collector).__name__)


class ServiceMetrics:
    """The registry of one service and the metrics that every service has."""

    def __init__(self, service: str, commit: str = "") -> None:
        self.service = service
        self.parts: Sequence[str] = (service,)
        """The services in this process. Several may have a metric of the same name."""
        self.registry = CollectorRegistry()
        self.on_failed: Callable[[str, Exception], None] = lambda name, error: None
        """Hears once of each metric that cannot be read, until it can be again."""
        self.before_page: dict[str, Callable[[], Awaitable[None]]] = {}
        """By a metric's name, what is awaited before a page is made: for values that take long to
        read."""
        self._is_preparing = False
        self._encoding = anyio.Lock()
        self._failed: PlainCounter[str] = PlainCounter()
        self._failing: set[str] = set()
        self._left_out: dict[str, int] = {}
        self._kept: dict[str, Kept] = {}
        """By the name of the first of each."""
        self._collectors: list[Collector] = [
            ProcessCollector(registry=self.registry),
            GCCollector(registry=self.registry),
        ]
        build = (version("allotment"), commit or "unknown")
        labels = ("version", "commit")
        self.expose("allot_build_info", "what is running", lambda: {build: 1}, labels)
        self.expose(
            "allot_metrics_rows_left_out",
            "rows that metrics with too many of them were left without at the last scrape",
            lambda: {(name,): count for name, count in self._left_out.items()},
            ("metric",),
        )
        self.append_conflicts = Counter(
            "allot_log_append_conflicts_total",
            "appends that lost the race for their place in the log",
            registry=self.registry,
        )
        self._stages = Histogram(
            "allot_stage_duration_seconds",
            "time one batch spent in a stage",
            ["stage"],
            buckets=STAGE_BUCKETS_S,
            registry=self.registry,
        )
        self._collectors += [self.append_conflicts, self._stages]
        self.expose(
            "allot_metrics_failed_total",
            "scrapes without a metric because reading it failed, by the metric",
            lambda: {(name,): count for name, count in self._failed.items()},
            ("metric",),
            "counter",
        )

    def expose(
        self,
        name: str,
        text: str,
        read: Callable[[], Reading],
        labels: Sequence[str] = (),
        kind: Literal["gauge", "counter"] = "gauge",
    ) -> None:
        """Publish a value that `read` returns at scrape time; with labels, a mapping of values.

        Raises ValueError if the registry already has a metric of that name.
        """
        self._register(_Callback(name, text, kind, labels, read, self._left_out))

    def expose_gauges(
        self, read: Callable[[], Sequence[Gauge]], known: Sequence[Gauge] = ()
    ) -> None:
        """Publish gauges whose rows and labels `read` makes at scrape time.

        `known` are the names it can give. Raises ValueError if the registry has one of them.
        """
        self._register(_Gauges(read, known, self._left_out))

    def expose_kept(self, kept: Kept) -> None:
        """Publish gauges with very many rows, whose text is kept from scrape to scrape.

        Raises ValueError if the registry has one of their names.
        """
        known = kept.known()
        self.registry.register(
            _Gauges(tuple, known, self._left_out)
        )  # no other metric may have these names
        self._kept[known[0].name] = kept

    def expose_histograms(self, counted: Sequence[Counted]) -> None:
        """Publish histograms that their owners go on counting.

        Raises ValueError if the registry already has a metric of one of the names.
        """
        self._register(_Histograms(counted))

    def expose_sequences(self, head: Callable[[], int], applied: Callable[[], int]) -> None:
        """Where the log ends and how far this service has folded it; the difference is its lag."""
        self.expose("allot_log_head_seq", "last sequence known to be in the log", head)
        self.expose(
            "allot_ledger_seq",
            "last sequence applied to this service's state",
            lambda: {(part,): applied() for part in self.parts},
            ("service",),
        )

    def observe_stage(
        self, stage: str, duration_s: float, trace_id: str | None = None, log_seq: int | None = None
    ) -> None:
        """Record one batch's time in a stage; the ids become the bucket's exemplar."""
        exemplar = {}
        if trace_id is not None:
            exemplar["trace_id"] = trace_id
        if log_seq is not None:
            exemplar["log_seq"] = str(log_seq)
        self._stages.labels(stage).observe(duration_s, exemplar or None)

    async def page(self, accept: str) -> tuple[Iterator[bytes], str]:
        """What a scraper with this Accept header gets: the body in parts, and its content type.

        Gauges with very many rows are written down in slices, between which others have their turn,
        as they have between two pages, however many are asked for at once.
        """
        await self._prepare()
        parts: list[list[bytes]] = []
        heading = partial(_heading, _encoder_for(accept)[0])
        for name, kept in self._kept.items():
            try:
                await keep_up(kept)
                parts += joined(kept.pages(), heading)
            except Exception as error:  # as in `encode`: of these, and not of the others
                self._fail(name, error)
            else:
                self._failing.discard(name)
        async with self._encoding:
            body, content_type = self.encode(accept)
        end = _END if body.endswith(_END) else b""
        parts = [[body.removesuffix(end)], *parts, [end]]
        return map(b"".join, parts), content_type

    async def _prepare(self) -> None:
        """Await what comes before a page. Not twice at once: meanwhile the values that were read
        before are shown.
        """
        if self._is_preparing:
            return
        self._is_preparing = True
        try:
            for name, prepare in self.before_page.items():
                try:
                    await prepare()
                except Exception as error:  # the values that were read before are shown again
                    self._fail(name, error)
                else:
                    self._failing.discard(name)
        finally:
            self._is_preparing = False

    def encode(self, accept: str) -> tuple[bytes, str]:
        """The same at once, without gauges that are kept.

        Exemplars exist only in OpenMetrics, so the header decides whether they are seen. A metric
        that cannot be read is left out, counted and reported; the others are answered.
        """
        encoder, content_type = _encoder_for(accept)
        try:
            body = encoder(self.registry)
        except Exception:  # whatever it is: of one metric, and not of the others
            body = encoder(_Read(self._readable(encoder)))
        else:
            self._failing &= self._kept.keys() | self.before_page.keys()
        return body, content_type

    def _readable(self, encoder: Callable[[Any], bytes]) -> list[Metric]:
        """The metrics that can be read and written down, each asked for itself."""
        found: list[Metric] = []
        for collector in self._collectors:
            name = _name_of(collector)
            try:
                families = list(collector.collect())
                encoder(_Read(families))  # a value may be one that no text can hold
            except Exception as error:
                self._fail(name, error)
                continue
            self._failing.discard(name)
            found += families
        return found

    def _register(self, collector: Collector) -> None:
        names = {*_names_of(collector)} if len(self.parts) > 1 else set[str]()
        for other in [each for each in self._collectors if names & {*_names_of(each)}]:
            self.registry.unregister(other)
            self._collectors.remove(other)
            collector = _Joint(other, collector)
        self.registry.register(collector)
        self._collectors.append(collector)

    def _fail(self, name: str, error: Exception) -> None:
        self._failed[name] += 1
        if name not in self._failing:
            self._failing.add(name)
            self.on_failed(name, error)
