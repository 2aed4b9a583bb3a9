"""Actions, configurations, metrics and YAML's own corners: what is warned of, with its place."""

from decimal import Decimal
from pathlib import Path

import pytest

from allotment.core.config.document import DocumentError, Mapping, Scalar, load
from allotment.core.plugin_arguments import is_configured
from allotment_proto.facts import BUILT_IN_TIERS, Policy
from tests.unit.config_files import parsed, problems

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    "name", ["deploy/base/volcano-scheduler.conf", "deploy/examples/config/volcano-scheduler.conf"]
)
def test_the_files_that_we_ship_have_nothing_to_be_said_of(name: str) -> None:
    assert parsed((ROOT / name).read_text()).warnings == ()


def test_the_full_example_is_two_tiers_and_three_actions() -> None:
    text = (ROOT / "deploy/examples/config/volcano-scheduler.conf").read_text()
    found = parsed(text).policy
    assert found.actions == ("enqueue", "allocate", "backfill")
    assert [[use.name for use in tier] for tier in found.tiers] == [
        ["priority", "gang", "conformance"],
        ["drf", "deviceshare", "predicates", "capacity-card", "nodeorder", "binpack"],
    ]
    binpack = found.tiers[1][-1]
    assert dict(binpack.arguments)["binpack.weight"] == 10


def test_all_actions_in_the_order_of_the_file() -> None:
    found = parsed("actions: ' reclaim,enqueue , allocate,backfill,preempt'")
    assert found.policy.actions == ("reclaim", "enqueue", "allocate", "backfill", "preempt")
    assert found.warnings == ()
    assert found.policy.tiers == BUILT_IN_TIERS


@pytest.mark.parametrize("action", ["shuffle", "gangpreempt", "gangreclaim"])
def test_actions_that_are_not_supported_are_named(action: str) -> None:
    found = parsed(f"actions: allocate, {action}")
    assert found.policy.actions == ("allocate",)
    assert found.warnings == (
        f"conf:1:10: actions: {action} is not supported; read, has no effect",
    )


def test_configurations_by_action() -> None:
    text = """
configurations:
- name: preempt
  arguments: {predicateErrorCacheEnable: "false", minCandidateNodesAbsolute: 5}
- name: allocate
  arguments: {predicateErrorCacheEnable: false}
- name: backfill
- name: init-params
  arguments: {presetVirtualDevice: "true", self-maintain-available-card: false}
"""
    found = parsed(text)
    policy = found.policy
    assert [use.name for use in policy.configurations] == ["allocate", "init-params", "preempt"]
    assert not is_configured(policy, "allocate", "predicateErrorCacheEnable")
    assert not is_configured(policy, "preempt", "predicateErrorCacheEnable")
    assert is_configured(policy, "backfill", "predicateErrorCacheEnable")
    assert is_configured(policy, "init-params", "presetVirtualDevice")
    assert is_configured(policy, "init-params", "useClusterInfoManager")
    assert not is_configured(policy, "init-params", "self-maintain-available-card")
    assert found.warnings == (
        "conf:4:51: minCandidateNodesAbsolute of configuration preempt: read, has no effect",
    )


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{1: a}", "conf:1:2: unknown key 1 of the file, ignored; known are actions, tiers"),
        (
            "action: allocate",
            "conf:1:1: unknown key action of the file, ignored; did you mean acti",
        ),
        (
            "actions: allocate\nactions: backfill",
            "conf:2:1: key actions stands here again (first in line 1); this counts",
        ),
        ("actions: allocate, allocate", "conf:1:10: actions: allocate is listed twice"),
        (
            "configurations: [{name: alocate}]",
            "conf:1:25: unknown configuration alocate, ignored; did you mean allocate?",
        ),
        ("configurations: [{name: shuffle}]", "conf:1:25: configuration shuffle: read, has no ef"),
        (
            "configurations: [{name: reclaim, argument: {}}]",
            "conf:1:34: unknown key argument of a configuration, ignored; did you mean arguments?",
        ),
        (
            "configurations: [{name: enqueue, arguments: {overcommit-factor: 2}}]",
            "conf:1:46: unknown argument overcommit-factor of configuration enqueue, ignored; it "
            "belongs to the plugin overcommit",
        ),
        (
            "configurations: [{name: allocate, arguments: {predicateErrorCacheEnable: 1}}]",
            "conf:1:74: predicateErrorCacheEnable of configuration allocate is 1; wanted: true or "
            "false; the default true stays",
        ),
        (
            "configurations: [{name: allocate}, {name: allocate}]",
            "conf:1:36: configuration allocate is listed twice; the first counts",
        ),
        ("metrics: {type: prometheus, address: http://secret}", "conf:1:10: metrics: read, has no"),
    ],
)
def test_what_is_left_aside_is_said(text: str, says: str) -> None:
    (warning,) = parsed(text).warnings
    assert warning.startswith(says)
    assert "secret" not in warning


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("configurations: x", "conf:1:17: configurations is 'x'; wanted: a list of mappings"),
        ("configurations: [x]", "conf:1:18: a configuration is 'x'; wanted: a mapping with name"),
        ("configurations: [{}]", "conf:1:18: a configuration has no name"),
        ("configurations: [{name: [a]}]", "conf:1:25: the name of a configuration is a list; want"),
        (
            "configurations: [{name: allocate, arguments: 1}]",
            "conf:1:46: arguments of configuration allocate is 1; wanted: a mapping",
        ),
        ("metrics: 5", "conf:1:10: metrics is 5; wanted: a mapping"),
        ("metrics: {type: [x]}", "conf:1:17: metrics.type is a list; wanted: a text"),
    ],
)
def test_what_is_refused(text: str, says: str) -> None:
    (problem,) = problems(text)
    assert problem.startswith(says)


def test_of_equal_keys_the_last_counts() -> None:
    assert parsed("actions: allocate\nactions: backfill").policy.actions == ("backfill",)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("12", 12),
        ("0x1F", 31),
        ("010", 8),
        ("-1_000", -1_000),
        ("1:30", "1:30"),
        ("1.50", Decimal("1.5")),
        ("1e3", Decimal(1_000)),
        ("'1e3'", "1e3"),
        ("-.inf", Decimal("-Infinity")),
        ("1:30.5", "1:30.5"),
        ("9" * 5_000, "9" * 5_000),
        ("yes", True),
        ("~", None),
        ("2001-13-45", "2001-13-45"),
        ("=", "="),
    ],
)
def test_scalars(text: str, value: object) -> None:
    root = load(f"a: {text}").root
    assert isinstance(root, Mapping)
    found = root.get("a")
    assert isinstance(found, Scalar)
    assert (found.value, type(found.value)) == (value, type(value))
    assert (found.mark.line, found.mark.column) == (1, 4)


def test_a_place_is_counted_from_one() -> None:
    with pytest.raises(DocumentError) as caught:
        load("\x00")
    assert caught.value.mark == (1, 1)


def test_a_policy_without_configurations_has_the_defaults() -> None:
    assert is_configured(Policy(), "allocate", "predicateErrorCacheEnable")
