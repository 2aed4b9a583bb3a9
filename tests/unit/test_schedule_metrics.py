"""What the records show of waits and attempts, counted by hand; histograms and exemplars."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
from prometheus_client import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_metrics
from prometheus_client.parser import text_string_to_metric_families as plain_text
from prometheus_client.samples import Sample

from allotment.adapters.telemetry.metrics import ServiceMetrics
from allotment.core import reasons
from allotment.core.explain.causes.why import Whys
from allotment.core.explain.history.attempts import waiting
from allotment.core.ledger.state import apply_all
from allotment.core.metrics.cards import node_gauge
from allotment.core.metrics.histograms import Histogram, spread
from allotment.core.metrics.schedule import RoundTimings, Schedules
from allotment.core.trace_ids import root_id, trace_id, traceparent
from allotment_proto.events import (
    BindFailed,
    Bound,
    Decided,
    Envelope,
    Event,
    GroupGone,
    NodeGone,
    PodGone,
    Refusal,
    StageTime,
)
from allotment_proto.facts import Problem
from tests import build
from tests.unit.rounds_world import World, group

UID = "0af76519-16cd-43dd-8448-eb211c80319c"
OPEN_METRICS = "application/openmetrics-text; version=1.0.0"


class Watched(World):
    """A world whose records are counted; each comes at a time of its own."""

    def __init__(self, *events: Event) -> None:
        self.schedules = Schedules()
        self.at_ms = 0
        self.is_ours = True
        super().__init__(*events)

    def tell(self, event: Event) -> None:
        self.seq += 1
        apply_all(self.state, (event,), self.seq, is_decision=isinstance(event, Decided))
        envelope = Envelope(v=3, at_ms=self.at_ms, by="test", events=(event,))
        self.schedules.take(self.seq, self.at_ms, envelope, self.state, is_ours=self.is_ours)

    def pod(self, uid: str, at_ms: int, **more: Any) -> None:
        self.at_ms = at_ms
        self.tell(build.pod(uid, **more))

    def counted(self) -> dict[str, tuple[int, int]]:
        """By stage of our own: how many, and the sum of their milliseconds."""
        rows = self.schedules.duration.rows
        return {labels[0]: (sum(r.counts), r.sum_us // 1000) for labels, r in rows.items()}

    def rows(self, name: str) -> Any:
        for gauge in self.schedules.gauges(self.state):
            if gauge.name == f"volcano_{name}":
                return gauge.rows
        for histogram in self.schedules.histograms():
            if histogram.name == f"volcano_{name}":
                return {
                    labels: (sum(row.counts), row.sum_us // 1000)
                    for labels, row in histogram.rows.items()
                }
        raise AssertionError(name)


def outcome(kind: type[Bound] | type[BindFailed], uid: str, **more: Any) -> Event:
    return kind(uid=uid, namespace="default", name=uid, node="n1", decision=1, **more)


def test_a_pods_way_is_told_by_four_moments() -> None:
    world = Watched(build.node("n1", 1))
    world.at_ms = 1_250  # the pod is of 1,000
    world.tell(build.pod("a", rv=1))
    world.at_ms = 1_300
    world.tell(build.pod("a", rv=2, labels=(("x", "y"),)))  # no news of when it was seen
    world.at_ms = 1_500
    stages = (
        StageTime("filter", "f", 10_000, 12_000),
        StageTime("scorer", "s", 13_000, 18_000),
        StageTime("binder", "b", 19_000, 30_000),
    )
    world.tell(build.decided(build.placement("a"), batch=("a",), stages=stages))
    world.at_ms = 2_000
    world.tell(outcome(Bound, "a"))
    assert world.rows("task_scheduling_latency_milliseconds") == {
        ("Watched",): (1, 250),
        ("Assumed",): (1, 500),
        ("Bound",): (1, 1_000),
    }
    assert world.rows("scheduling_stage_duration_milliseconds") == {
        ("Predicate",): (1, 2),
        ("Scoring",): (1, 5),
    }
    assert world.rows("e2e_scheduling_latency_milliseconds") == {(): (1, 20)}
    assert world.rows("pods_bound_total") == {(): 1}


def test_attempts_by_what_came_of_them() -> None:
    world = Watched(build.node("n1", 1))
    for uid in ("a", "b", "c"):
        world.tell(build.pod(uid))
    both = build.placement("a"), build.placement("b", "elsewhere")  # no such node: it is void
    world.tell(build.decided(*both, batch=("a", "b", "c")))
    world.tell(outcome(BindFailed, "a", code="APIError", message=""))
    assert world.rows("schedule_attempts_total") == {
        ("scheduled",): 1,
        ("unschedulable",): 2,
        ("error",): 1,
    }


def test_what_others_count_is_remembered_and_not_counted() -> None:
    world = Watched(build.node("n1", 1))
    world.is_ours = False
    world.tell(group("g", 1, created_ms=3_000))
    world.tell(build.pod("a", group="default/g"))
    world.at_ms = 5_000
    world.tell(build.decided(build.placement("a"), batch=("a",)))
    world.tell(outcome(Bound, "a"))
    assert world.rows("schedule_attempts_total")[("scheduled",)] == 0
    assert world.rows("task_scheduling_latency_milliseconds") == {}
    assert world.rows("e2e_job_scheduling_duration") == {("g", "default", "default"): 2_000}


def test_groups_have_times_and_retries_until_they_are_gone() -> None:
    world = Watched(build.node("n1", 2))
    waits = world.gang("waits", 3)
    world.tell(group("fits", 2, created_ms=7_000))
    fits = world.pods("fits", 2)
    world.at_ms = 9_500
    world.decide([*fits, *waits])
    world.decide(waits)
    labels = ("fits", "default", "default")
    assert world.rows("e2e_job_scheduling_latency_milliseconds") == {(): (1, 2_500)}
    assert world.rows("e2e_job_scheduling_duration") == {labels: 2_500}
    assert world.rows("e2e_job_scheduling_last_time") == {labels: 9}
    assert world.rows("e2e_job_scheduling_start_time")[labels] == 7
    assert world.rows("job_retry_counts") == {("default/waits",): 2}
    for name in ("waits", "fits"):
        world.tell(GroupGone(uid=f"uid-{name}", namespace="default", name=name, rv=2))
    for gauge in ("e2e_job_scheduling_last_time", "job_retry_counts"):
        assert world.rows(gauge) == {}


def test_a_round_tells_its_steps_in_order_and_decides_the_same() -> None:
    world = World(build.node("n1", 2))
    batch = world.gang("g", 2)
    clock = iter(range(0, 10_000_000, 1_000))
    timings = RoundTimings(lambda: next(clock))
    timings.begin()
    assert world.rounds.run(batch, world.board, on_step=timings.step_ended) == world.round(batch)
    session, plugins, actions = timings.histograms()
    names = ["priority", "gang", "conformance", "drf", "proportion"]
    assert list(plugins.rows) == [(name, "OnSessionOpen") for name in names]
    assert session.rows[()].sum_us == (len(names) + 1) * 1_000
    assert set(actions.rows) == {(name,) for name in world.state.policy.actions}
    assert all(row.sum_us == 1_000 for row in actions.rows.values())


def test_bounds_are_spread_evenly_and_hold_what_is_at_most_as_much() -> None:
    bounds = spread(1, 1000, 4)
    assert bounds == (1, 10, 100, 1000)
    found = Histogram("x_milliseconds", "x", bounds)
    for value_us in (-5, 1_000, 1_001, 10_000, 2_000_000):
        found.observe(value_us)
    assert found.rows[()].counts == [2, 2, 0, 0, 1]
    assert found.rows[()].cumulative() == [2, 4, 4, 4, 5]
    assert found.rows[()].sum_us == 2_012_001


@pytest.mark.parametrize("accept", ["text/plain", "application/openmetrics-text; version=1.0.0"])
def test_they_can_be_scraped(accept: str) -> None:
    metrics = ServiceMetrics("scorer")
    counted = Histogram("h_milliseconds", "text", (1, 2.5), ("stage",))
    metrics.expose_histograms([counted])
    metrics.expose_gauges(lambda: Schedules().gauges(World().state))
    counted.observe(2_000, "Bind")
    text = metrics.encode(accept)[0].decode()
    lines = text.splitlines()
    buckets = [line.split() for line in lines if line.startswith("h_milliseconds_bucket")]
    assert [(where.partition('le="')[2][:4], float(many)) for where, many in buckets] == [
        ('1",s', 0),
        ('2.5"', 1),
        ("+Inf", 1),
    ]
    assert 'h_milliseconds_sum{stage="Bind"} 2.0' in lines
    assert 'volcano_schedule_attempts_total{result="scheduled"} 0.0' in lines
    with pytest.raises(ValueError, match="Duplicated"):
        metrics.expose_histograms([counted])
    if accept == "text/plain":
        assert list(plain_text(text))


def bound(uid: str) -> Bound:
    return Bound(uid=uid, namespace="default", name=uid, node="n1", decision=1)


def refusal(uid: str, *counted: tuple[str, int], problem: Problem | None = None) -> Refusal:
    return Refusal(
        uid=uid, namespace="default", name=uid, nodes=1, reasons=counted, problem=problem
    )


def test_a_pods_clock_runs_from_its_wait_to_its_first_moment_in_each_stage() -> None:
    world = Watched(build.node("n1", 1))
    world.pod(UID, 1_000, gated=True)  # whoever holds it back is not the scheduler
    world.pod(UID, 5_000, rv=2)
    world.at_ms = 5_250
    world.tell(build.decided(build.placement(UID), batch=(UID,)))
    world.at_ms = 5_400
    world.tell(bound(UID))
    world.pod(UID, 5_600, rv=3, node="n1")  # seen bound: no second time
    world.pod(UID, 9_000, rv=4, node="n1", phase="Running")
    assert world.counted() == {"decided": (1, 250), "bound": (1, 400), "running": (1, 4_000)}
    assert len(world.schedules) == 0


def test_what_another_replica_counts_is_remembered_only() -> None:
    world = Watched(build.node("n1", 1))
    world.is_ours = False
    world.pod(UID, 1_000)
    world.at_ms = 2_000
    world.tell(build.decided(build.placement(UID), batch=(UID,)))
    assert world.counted() == {}
    world.is_ours = True  # the lease is this replica's from now on
    world.at_ms = 3_000
    world.tell(bound(UID))
    assert world.counted() == {"bound": (1, 2_000)}


def test_pods_of_a_snapshot_have_no_clock() -> None:
    """Since when they wait is not known, and a time that is not known is not counted."""
    world = Watched(build.node("n1", 1))
    for uid in ("old", "changed"):
        world.pod(uid, 1_000, created_ms=1_000)
    world.schedules = Schedules()
    world.schedules.pass_by(world.state.pods)
    world.pod("changed", 61_000, created_ms=1_000, rv=2)
    world.pod("new", 62_000, created_ms=1_000)
    world.at_ms = 62_500
    for uid in ("old", "changed", "new"):
        world.tell(build.decided(build.placement(uid), batch=(uid,)))
    assert world.counted() == {"decided": (1, 500)}
    for uid in ("old", "changed", "new"):
        world.tell(PodGone(uid=uid, namespace="default", name=uid, rv=9))
    assert not world.schedules._passed_by


def test_pods_that_go_or_are_placed_by_others_leave_no_clock() -> None:
    world = Watched(build.node("n1", 1))
    for uid in ("a", "b"):
        world.pod(uid, 1_000)
    world.tell(PodGone(uid="a", namespace="default", name="a", rv=2))
    world.pod("b", 1_500, rv=2, node="n1")
    assert len(world.schedules) == 0
    assert world.counted() == {}


def samples(text: bytes, *, is_open: bool) -> Iterator[Sample]:
    parse: Callable[[str], Iterable[Metric]] = open_metrics if is_open else plain_text
    for family in parse(text.decode()):
        yield from family.samples


def test_exemplars_name_trace_and_record_in_open_metrics_alone() -> None:
    world = Watched(build.node("n1", 1))
    world.pod(UID, 1_000)
    world.at_ms = 1_040
    world.tell(build.decided(build.placement(UID), batch=(UID,)))
    metrics = ServiceMetrics("allotment-test")
    metrics.expose_histograms([world.schedules.duration])
    found = [
        sample
        for sample in samples(metrics.encode(OPEN_METRICS)[0], is_open=True)
        if sample.exemplar is not None
    ]
    (sample,) = found
    assert (sample.name, sample.labels["le"]) == (
        "allot_scheduling_duration_seconds_bucket",
        "0.05",
    )
    assert sample.exemplar is not None
    assert sample.exemplar.labels == {
        "trace_id": UID.replace("-", ""),
        "log_seq": str(world.seq),
    }
    assert (sample.exemplar.value, float(sample.exemplar.timestamp or 0)) == (0.04, 1.04)
    plain, content_type = metrics.encode("text/plain")
    assert content_type.startswith("text/plain")
    assert b"trace_id" not in plain
    assert b"_created" not in plain
    assert any(s.name.endswith("_sum") and s.value == 0.04 for s in samples(plain, is_open=False))


def test_attempts_are_counted_in_the_words_of_stories() -> None:
    world = Watched(build.node("n1", 1))
    for uid in ("a", "b", "c", "d"):
        world.pod(uid, 1_000)
    short = refusal("c", (reasons.INSUFFICIENT_GPU_MEMORY, 1))
    placed = build.placement("a"), build.placement("b", "elsewhere")  # no such node: it is void
    world.tell(build.decided(*placed, batch=("a", "b", "c", "d"), refusals=(short,)))
    world.tell(build.decided(batch=("c",), checked=world.seq))
    told = {name: count for name, count in world.schedules.outcomes.items() if count}
    assert told == {"placed": 1, "void": 1, "refused": 1, "skipped": 1, "unchanged": 1}
    assert world.schedules.rejections == {
        reasons.STALE_LEDGER: 1,
        reasons.INSUFFICIENT_GPU_MEMORY: 2,
    }


def test_reasons_are_those_of_the_table_whatever_a_record_says() -> None:
    world = Watched(build.node("n1", 1))
    world.pod("a", 1_000)
    for number in range(50):
        said = refusal("a", problem=Problem(f"Made-up-{number}", "x", "y"))
        world.tell(build.decided(batch=("a",), refusals=(said,), checked=world.seq))
    assert world.schedules.rejections == {"Other": 50}
    assert list(waiting(world.state, Whys(world.state))) == [("Other", "")]


def test_waits_are_counted_by_reason_and_what_ends_it() -> None:
    world = Watched(build.node("n1", 1))
    for uid, created_ms in (("a", 7_000), ("b", 3_000), ("c", 9_000)):
        world.pod(uid, 10_000, created_ms=created_ms)
    said = [refusal(uid, (reasons.INSUFFICIENT_GPU_MEMORY, 1)) for uid in ("a", "b")]
    world.tell(build.decided(batch=("a", "b"), refusals=tuple(said)))
    found = waiting(world.state, Whys(world.state))
    assert found[reasons.INSUFFICIENT_GPU_MEMORY, "room"] == (2, 3_000)
    assert found[reasons.QUEUED, "retry"] == (1, 9_000)


def test_nodes_by_status() -> None:
    world = Watched(build.node("n1", 1), build.node("n2", 1, ready=False))
    world.pod("a", 1_000)
    world.tell(build.decided(build.placement("a"), batch=("a",)))
    world.tell(NodeGone(name="n1", uid="uid-n1", rv=2))
    assert node_gauge(world.state).rows == {
        ("ready",): 0,
        ("cordoned",): 0,
        ("not_ready",): 1,
        ("gone",): 1,
    }


def test_a_pod_goes_on_with_the_trace_that_is_printed() -> None:
    version, trace, parent, flags = traceparent(UID).split("-")
    assert (version, flags) == ("00", "01")
    assert (trace, parent) == (trace_id(UID), root_id(UID))
