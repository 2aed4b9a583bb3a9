"""Plugins by name: arguments by Volcano's rules of types, switches by their exact spelling."""

from fractions import Fraction
from typing import Any

import pytest

from allotment.core.queues.model import NodeGroups
from allotment.core.queues.plugins import nodegroup, overcommit, sla
from allotment.core.queues.plugins.base import SWITCHES
from allotment.core.queues.plugins.capacity import Settings as CapacitySettings
from allotment.core.queues.plugins.nodegroup import LABEL, is_allowed, points_micro
from allotment.core.queues.plugins.registry import HIERARCHY, PLUGINS, configure
from allotment.core.queues.plugins.sla import DurationError, waiting_ms
from allotment.core.queues.round.rounds import tiers_of
from allotment_proto.facts import PluginUse
from tests.unit.config_files import file_of, parsed
from tests.unit.queues_parts import job, plugin, queue, session


def test_every_plugin_opens_with_its_defaults() -> None:
    for name, entry in PLUGINS.items():
        configured = configure(PluginUse(name))
        assert configured.points == entry.points
        assert session(job("j"), tiers=[[configured]]).plugin(name) is not None


def test_every_field_of_the_settings_has_an_argument() -> None:
    for entry in PLUGINS.values():
        fields = {argument.field for argument in entry.declared.values() if argument.field}
        assert fields == set(entry.settings.__struct_fields__) - {HIERARCHY}


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("overcommit", (("overcommit-factor", 500),), overcommit.Settings(Fraction(6, 5))),
        ("overcommit", (("overcommit-factor", "1.5"),), overcommit.Settings(Fraction(6, 5))),
        ("nodegroup", (("strict", 0),), nodegroup.Settings(strict=True, hierarchy=False)),
        ("sla", (("sla-waiting-time", -5),), sla.Settings(None)),
        ("sla", (("unknown", 1),), sla.Settings(None)),
    ],
)
def test_what_a_log_says_wrongly_counts_as_the_default(
    name: str, arguments: Any, expected: object
) -> None:
    assert configure(PluginUse(name, arguments=arguments)).arguments == expected


def test_switches() -> None:
    configured = plugin("gang", {"enablePreemptable": False, "enableJobOrder": True})
    assert PLUGINS["gang"].points - configured.points == {"preemptable"}
    assert plugin("capacity", {"enableHierarchy": True}).arguments == CapacitySettings(True)
    assert SWITCHES["overused"] == "enabledOverused"
    everything_off = dict.fromkeys(SWITCHES.values(), False)
    assert plugin("gang", everything_off).points == {"job_valid"}


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [("90s", 90_000), ("1h2m3s4ms", 3_723_004), ("1.5h", 5_400_000), ("1ns", 1), ("0.5ms", 1)],
)
def test_durations(text: str, milliseconds: int) -> None:
    assert waiting_ms(text) == milliseconds


@pytest.mark.parametrize("text", ["", "5", "1h 2m", "-1s", "0s", "h", "1d", "9" * 30 + "s"])
def test_durations_that_are_none(text: str) -> None:
    with pytest.raises(DurationError, match="90s or 1h30m"):
        waiting_ms(text)


GROUPS = NodeGroups(
    required=frozenset("abx"),
    preferred=frozenset("bp"),
    anti_required=frozenset("xy"),
    anti_preferred=frozenset("y"),
)


@pytest.mark.parametrize(
    ("group", "allowed", "points"),
    [
        ("a", True, 100),
        ("b", True, 150),
        ("p", True, 50),
        ("x", False, 100),
        ("y", True, -1),
        ("z", False, 0),
    ],
)
def test_node_groups(group: str, allowed: bool, points: int) -> None:
    assert is_allowed(GROUPS, group) == allowed
    assert points_micro(GROUPS, group) == points * 1_000_000
    found = session(job("j"), queues=[queue(node_groups=GROUPS)], tiers=[["nodegroup"]])
    one = found.jobs["j"]
    (rule,) = found.node_rules(one)
    assert (rule.code, rule.text) == (
        "NodeGroupMismatch",
        "queue q may use only node groups a, b, p, y",
    )
    assert rule.allows({LABEL: group}) == allowed
    assert not rule.allows({})
    (bonus,) = found.node_points(one)
    assert (bonus.plugin, bonus.label) == ("nodegroup", LABEL)
    assert dict(bonus.by_value).get(group, 0) == points * 1_000_000


def test_node_groups_of_queues_without_affinity() -> None:
    for strict, allowed in ((True, False), (False, True)):
        tier = [plugin("nodegroup", None, strict=strict)]
        found = session(job("j"), tiers=[tier])
        (rule,) = found.node_rules(found.jobs["j"])
        assert rule.allows({}) == allowed
        assert not rule.allows({LABEL: "a"})
        assert rule.text.startswith("queue q has no affinity to any node group")
        assert ("only nodes without one" in rule.text) == allowed
        assert found.node_points(found.jobs["j"]) == ()


def test_node_groups_come_from_the_nearest_queue_above() -> None:
    queues = [
        queue("top", node_groups=GROUPS),
        queue("team", parent="top"),
        queue("q", parent="team"),
    ]
    inherits = plugin("nodegroup", {"enableHierarchy": True})
    found = session(job("j"), queues=queues, tiers=[[inherits]])
    assert found.node_rules(found.jobs["j"])[0].allows({LABEL: "a"})
    alone = session(job("j"), queues=queues, tiers=[["nodegroup"]])
    assert not alone.node_rules(alone.jobs["j"])[0].allows({LABEL: "a"})


def test_sla_orders_by_deadline_and_keeps_promises_of_the_late() -> None:
    jobs = [
        job("never", 1),
        job("later", 1, waiting_most_ms=9_000, created_ms=1_000),
        job("sooner", 2, waiting_most_ms=1_000, created_ms=5_000),
    ]
    found = session(*jobs, tiers=[["sla"], ["gang"]], now_ms=7_000)
    ordered = sorted(found.jobs.values(), key=found.job_key)
    assert [one.uid for one in ordered] == ["sooner", "later", "never"]
    assert found.job_pipelined(found.jobs["sooner"]), "its time is up"
    assert not found.job_pipelined(found.jobs["later"])


@pytest.mark.parametrize(
    ("name", "key", "text", "field", "value"),
    [
        ("capacity-card", "cardUnlimitedCpuMemory", "true", "unlimited_cpu_memory", True),
        ("capacity-card", "allotment.shareQuota", "false", "share_quota", False),
        ("capacity-card", "nodeOrderWeight", "2.5", "node_order_weight", Fraction(5, 2)),
        ("overcommit", "overcommit-factor", "1.3", "factor", Fraction(13, 10)),
        ("nodegroup", "strict", "'false'", "strict", False),
        ("task-topology", "task-topology.weight", "10", "weight", 10),
        ("sla", "sla-waiting-time", ".5h", "waiting_most_ms", 1_800_000),
    ],
)
def test_every_argument_reaches_its_plugin_from_a_text(
    name: str, key: str, text: str, field: str, value: object
) -> None:
    found = parsed(file_of(name, f"{key}: {text}"))
    assert found.warnings == ()
    ((configured,),) = tiers_of(found.policy)
    assert getattr(configured.arguments, field) == value
    assert getattr(configure(PluginUse(name)).arguments, field) != value


def test_the_test_above_knows_every_argument() -> None:
    (mark,) = getattr(test_every_argument_reaches_its_plugin_from_a_text, "pytestmark", [])
    tested = {(name, key) for name, key, *_ in mark.args[1]}
    declared = {
        (name, key)
        for name, entry in PLUGINS.items()
        for key, argument in entry.declared.items()
        if argument.field
    }
    assert declared == tested
