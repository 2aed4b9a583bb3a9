"""Gauges of queues and groups are read off the books of the plugin in force."""

from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from allotment.adapters.telemetry.metrics import ServiceMetrics
from allotment.core.ledger.model import ClusterState
from allotment.core.metrics.cards import Gauge
from allotment.core.metrics.queues import Preemptions, job_gauges, queue_gauges
from allotment_proto.events import Evicted, Eviction
from allotment_proto.facts import PluginUse, Policy
from tests import build
from tests.unit.queues_parts import GPU, amounts, job, plugin, queue, session, statuses
from tests.unit.rounds_world import World


def rows(gauges: list[Gauge], name: str) -> Any:
    (found,) = (gauge for gauge in gauges if gauge.name == f"volcano_{name}")
    return found.rows


def test_proportion_shows_what_queues_have_deserve_and_ask_for() -> None:
    gauges = queue_gauges(
        session(
            job("a", statuses("a", Running=2, Pending=3), queue="one"),
            job("b", statuses("b", Running=4), queue="two"),
            queues=(queue("one", weight=1), queue("two", weight=3, capability=amounts(6))),
            tiers=(("gang",), ("proportion",)),
            total=amounts(8),
        )
    )
    assert rows(gauges, "queue_allocated_scalar_resources") == {
        ("one", GPU): 2_000,
        ("two", GPU): 4_000,
    }
    assert rows(gauges, "queue_request_scalar_resources")[("one", GPU)] == 5_000
    assert rows(gauges, "queue_deserved_scalar_resources") == {
        ("one", GPU): 4_000,
        ("two", GPU): 4_000,
    }
    assert rows(gauges, "queue_capacity_scalar_resources") == {("two", GPU): 6_000}
    assert rows(gauges, "queue_real_capacity_scalar_resources")[("two", GPU)] == 6_000
    assert rows(gauges, "queue_share") == {("one",): 500_000, ("two",): 1_000_000}
    assert rows(gauges, "queue_weight") == {("one",): 1, ("two",): 3}
    assert rows(gauges, "queue_overused") == {("one",): 0, ("two",): 1}


def test_capacity_counts_a_queue_and_all_below_it() -> None:
    gauges = queue_gauges(
        session(
            job("a", statuses("a", Running=2), queue="leaf"),
            queues=(
                queue("above", capability=amounts(4, cpu=8)),
                queue("leaf", parent="above", deserved=amounts(2)),
            ),
            tiers=(("gang",), (plugin("capacity", {"enableHierarchy": True}),)),
            total=amounts(8, cpu=16, memory_gib=1),
        )
    )
    assert rows(gauges, "queue_allocated_scalar_resources") == {
        ("above", GPU): 2_000,
        ("leaf", GPU): 2_000,
    }
    assert rows(gauges, "queue_capacity_milli_cpu") == {("above",): 8_000}
    assert rows(gauges, "queue_real_capacity_memory_bytes")[("leaf",)] == 1 << 30
    assert rows(gauges, "queue_share")[("leaf",)] == 1_000_000


@pytest.mark.parametrize("tiers", [(("gang",),), (("gang", "priority"), ("drf",))])
def test_without_a_quota_plugin_there_is_no_due(tiers: Any) -> None:
    gauges = queue_gauges(session(job("a", statuses("a", Running=2, Pending=1)), tiers=tiers))
    assert rows(gauges, "queue_allocated_scalar_resources") == {("q", GPU): 2_000}
    assert rows(gauges, "queue_request_scalar_resources") == {("q", GPU): 3_000}
    assert rows(gauges, "queue_deserved_scalar_resources") == {}
    assert rows(gauges, "queue_share") == {("q",): 0}


def test_groups_that_found_no_place() -> None:
    world = World(build.node("n1", 2))
    world.gang("fits", 2)
    world.gang("waits", 3)
    world.decide()
    gauges = job_gauges(world.state, world.rounds.session())
    assert rows(gauges, "unschedule_job_count") == {(): 1}
    assert rows(gauges, "unschedule_task_count") == {("default/waits",): 3}
    shares = rows(gauges, "job_share")
    assert shares[("default", "default/waits")] == 0
    assert shares[("default", "default/fits")] == 2 * 1_000_000 // 20  # of 20 pods, the most of all


def test_evictions_are_counted_when_they_came_about() -> None:
    counts, others = Preemptions(), Preemptions()
    victims = tuple(
        Eviction(uid, "default", uid, "n1", action, "default/top")
        for uid, action in (("a", "preempt"), ("b", "preempt"), ("c", "reclaim"))
    )
    decided = build.decided(evictions=victims)
    counts.take(decided, is_ours=True)
    others.take(decided, is_ours=False)
    for uid, code in (("a", ""), ("a", ""), ("b", "DisruptionBudget"), ("c", ""), ("d", "")):
        evicted = Evicted(uid=uid, namespace="default", name=uid, node="n1", decision=1, code=code)
        counts.take(evicted, is_ours=True)
        others.take(evicted, is_ours=False)
    counts.take(build.decided(build.placement()), is_ours=True)
    gauges = counts.gauges()
    assert rows(gauges, "pod_preemption_victims") == {(): 3}
    assert rows(gauges, "total_preemption_attempts") == {(): 1}
    assert rows(gauges, "eviction_transactions_total") == {("preempt",): 1, ("reclaim",): 1}
    assert rows(others.gauges(), "eviction_transactions_total") == {}
    assert rows(others.gauges(), "total_preemption_attempts") == {(): 0}


def test_every_name_is_known_before_there_is_a_queue_and_can_be_scraped() -> None:
    tiers = ((PluginUse("gang"), PluginUse("proportion")),)
    world = World(build.node("n1", 2), policy=Policy(tiers=tiers))
    world.gang("a", 2)
    session_ = world.rounds.session()

    def read() -> list[Gauge]:
        found = [*queue_gauges(session_), *job_gauges(world.state, session_)]
        return [*found, *Preemptions().gauges()]

    known = [*queue_gauges(None), *job_gauges(ClusterState(), None), *Preemptions().gauges()]
    assert [gauge.name for gauge in known] == [gauge.name for gauge in read()]
    metrics = ServiceMetrics("scorer")
    metrics.expose_gauges(read, known)
    text = metrics.encode("text/plain")[0].decode()
    samples = {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    assert samples["volcano_queue_weight", "default"] == 1
    assert samples["volcano_unschedule_job_count",] == 0
