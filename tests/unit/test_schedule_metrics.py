"""What the records tell of waits and attempts, counted by hand; histograms as they are shown."""

from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from allotment.adapters.telemetry.metrics import ServiceMetrics
from allotment.core.ledger.state import apply_all
from allotment.core.metrics.histograms import Histogram, spread
from allotment.core.metrics.schedule import RoundTimings, Schedules
from allotment_proto.events import BindFailed, Bound, Decided, Envelope, Event, GroupGone, StageTime
from tests import build
from tests.unit.rounds_world import World, group


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
        self.schedules.take(envelope, self.state, is_ours=self.is_ours)

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
        assert list(text_string_to_metric_families(text))
