"""The configuration file: what is read, and every mistake with its place, value and remedy."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allotment.core.config import policy
from allotment_proto.facts import BUILT_IN_TIERS, PluginUse, Policy
from tests.unit.config_files import file_of, parsed, problems


def deviceshare(*arguments: str) -> str:
    return file_of("deviceshare", *arguments)


@pytest.mark.parametrize("text", ["", "{}", "# nothing", "---\n"])
def test_a_file_without_content_is_what_is_built_in(text: str) -> None:
    assert parsed(text) == policy.Parsed(policy.built_in(("allotment",)), ())


def test_what_a_file_leaves_out_is_as_built_in() -> None:
    one = parsed("actions: allocate").policy
    assert (one.actions, one.tiers) == (("allocate",), BUILT_IN_TIERS)
    other = parsed("tiers: []").policy
    assert (other.actions, other.tiers) == (("enqueue", "allocate", "backfill"), ())


def test_what_is_built_in_is_the_fallback_of_volcano_and_deviceshare() -> None:
    text = """
actions: "enqueue, allocate, backfill"
tiers:
- plugins: [{name: priority}, {name: gang}, {name: conformance}]
- plugins:
  - name: overcommit
  - name: drf
  - name: deviceshare
  - name: predicates
  - name: proportion
  - name: nodeorder
"""
    assert parsed(text) == policy.Parsed(policy.built_in(("allotment",)), ())
    assert Policy().families == ("vgpu", "gpushare", "ascend", "mindcluster")


@pytest.mark.parametrize(
    ("plugins", "weight"),
    [
        ("{name: nodeorder}", 0),
        ("{name: binpack}, {name: deviceshare}", 0),
        ("{name: nodeorder}, {name: deviceshare, arguments: {deviceshare.VGPUEnable: true}}", 0),
        (
            "{name: nodeorder}, "
            "{name: deviceshare, arguments: {deviceshare.SchedulePolicy: spread}}",
            10,
        ),
        (
            "{name: nodeorder}, {name: deviceshare, arguments: {deviceshare.ScheduleWeight: 3}}",
            3,
        ),
        ("{name: deviceshare}", 10),
        ("{name: predicates}", 10),
    ],
)
def test_where_plugins_score_nodes_cards_count_only_if_the_file_says_so(
    plugins: str, weight: int
) -> None:
    found = parsed(f"tiers: [{{plugins: [{plugins}]}}]").policy
    assert (found.device_weight, found.fit_weight) == (weight, weight)


@pytest.mark.parametrize(
    ("argument", "field", "value"),
    [
        ("deviceshare.SchedulePolicy: spread", "device_policy", "spread"),
        ("deviceshare.SchedulePolicy: ''", "device_policy", "none"),
        ("deviceshare.SchedulePolicy:", "device_policy", "none"),
        ("deviceshare.ScheduleWeight: 0", "device_weight", 0),
        ("deviceshare.ScheduleWeight: 100", "device_weight", 100),
        ("deviceshare.VGPUEnable: 'T'", "families", ("vgpu",)),
        ("deviceshare.GPUNumberEnable: true", "families", ("gpushare",)),
        ("deviceshare.GPUNumberEnable: true", "gpushare_kind", "number"),
        ("deviceshare.GPUSharingEnable: yes", "gpushare_kind", "memory"),
        ("deviceshare.AscendHAMiVNPUEnable: true", "families", ("ascend",)),
        ("deviceshare.AscendMindClusterVNPUEnable: '1'", "families", ("mindcluster",)),
        ("deviceshare.VGPUEnable: false", "families", ()),
        ("deviceshare.NodeLockEnable: true", "node_lock", True),
        ("deviceshare.NodeLockEnable: true", "families", Policy().families),
        ("deviceshare.NodeLockEnable: true", "gpushare_kind", ""),
        ("deviceshare.KnownGeometriesCMName: gpus", "device_config", ("kube-system", "gpus")),
        (
            "deviceshare.KnownGeometriesCMNamespace: ml",
            "device_config",
            ("ml", "volcano-vgpu-device-config"),
        ),
        (
            "deviceshare.GPUExclusiveRules: [{team: ml, app: train}, {workload: 'yes'}]",
            "exclusive_rules",
            ((("app", "train"), ("team", "ml")), (("workload", "yes"),)),
        ),
        ("deviceshare.GPUExclusiveRules: []", "exclusive_rules", ()),
    ],
)
def test_deviceshare_arguments(argument: str, field: str, value: object) -> None:
    found = parsed(deviceshare(argument))
    assert getattr(found.policy, field) == value
    assert found.warnings == ()
    assert found.policy.tiers == ((PluginUse("deviceshare"),),)


def test_families_are_named_in_one_order() -> None:
    text = deviceshare(
        "deviceshare.AscendHAMiVNPUEnable: true",
        "deviceshare.VGPUEnable: true",
        "deviceshare.GPUNumberEnable: false",
    )
    assert parsed(text).policy.families == ("vgpu", "ascend")


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("GPUSharingEnable", "GPUNumberEnable"),
        ("GPUSharingEnable", "VGPUEnable"),
        ("GPUNumberEnable", "VGPUEnable"),
    ],
)
def test_switches_with_which_volcano_does_not_start_are_refused(first: str, second: str) -> None:
    text = deviceshare(f"deviceshare.{first}: true", f"deviceshare.{second}: true")
    (problem,) = problems(text)
    assert problem.startswith(f"conf:6:7: deviceshare.{first} and deviceshare.{second} are both")
    assert "set one of them to false" in problem
    assert parsed(text.replace(f"{second}: true", f"{second}: false")).warnings == ()


@pytest.mark.parametrize(
    ("argument", "says"),
    [
        (
            "deviceshare.ScheduleWeight: 'ten'",
            "5:35: deviceshare.ScheduleWeight of plugin "
            "deviceshare is 'ten'; wanted: a whole number; the default 10 stays",
        ),
        ("deviceshare.ScheduleWeight: 1.5", "is 1.5; wanted: a whole number"),
        ("deviceshare.ScheduleWeight: true", "is true; wanted: a whole number"),
        ("deviceshare.ScheduleWeight: [1]", "is a list; wanted: a whole number"),
        ("deviceshare.SchedulePolicy: 5", "is 5; wanted: a text; the default 'binpack' stays"),
        (
            "deviceshare.VGPUEnable: maybe",
            "5:31: deviceshare.VGPUEnable of plugin deviceshare is "
            "'maybe'; wanted: true or false; it counts as not written",
        ),
        ("deviceshare.VGPUEnable: 1", "is 1; wanted: true or false; it counts as not written"),
        ("deviceshare.NodeLockEnable: on-off", "wanted: true or false; the default false stays"),
        ("deviceshare.KnownGeometriesCMName: 7", "the default 'volcano-vgpu-device-config' stays"),
        ("deviceshare.GPUExclusiveRules:", "is empty; wanted: a list of label maps; there are no"),
        ("deviceshare.GPUExclusiveRules: {a: b}", "is a mapping; wanted: a list of label maps"),
        ("deviceshare.GPUExclusiveRules: [x]", "[0] is 'x'; wanted: a mapping from labels to"),
        (
            "deviceshare.GPUExclusiveRules: [{}]",
            "5:39: deviceshare.GPUExclusiveRules of plugin "
            "deviceshare[0] has no label and is left out",
        ),
        (
            "deviceshare.GPUExclusiveRule: []",
            "5:7: unknown argument deviceshare.GPUExclusiveRule "
            "of plugin deviceshare, ignored; did you mean deviceshare.GPUExclusiveRules?",
        ),
        ("predicate.CacheEnable: true", "ignored; it belongs to the plugin predicates"),
    ],
)
def test_what_is_left_aside_of_deviceshare_is_said(argument: str, says: str) -> None:
    found = parsed(deviceshare(argument))
    assert found.policy == parsed(deviceshare()).policy
    (warning,) = found.warnings
    assert warning.startswith("conf:5:")
    assert says in warning


def test_a_weight_below_zero_is_none() -> None:
    found = parsed(deviceshare("deviceshare.ScheduleWeight: -1"))
    assert found.policy.device_weight == 0
    assert "is -1; it counts as 0" in found.warnings[0]


def test_labels_of_a_rule_that_are_no_texts_are_dropped() -> None:
    text = deviceshare(
        "deviceshare.GPUExclusiveRules:", "- {app: train, team: 7, 1: one}", "- {a: yes}"
    )
    found = parsed(text)
    assert found.policy.exclusive_rules == ((("app", "train"),),)
    assert [warning.split(": ")[0] for warning in found.warnings] == [
        "conf:6:28",
        "conf:6:31",
        "conf:7:13",
        "conf:7:9",
    ]


def test_our_own_arguments() -> None:
    text = file_of(
        "allotment",
        "allotment.HostPolicy: spread",
        "allotment.HostWeight: 3",
        "allotment.FitWeight: 7",
        "allotment.MultiContainerEnable: true",
        "allotment.MigGeometryOrder: listed",
        "allotment.NamespaceLabelInMetrics: 't'",
        "allotment.NamespaceTurnsEnable: false",
        "allotment.DevicePluginBacklog: 9",
    )
    found = parsed(text)
    assert found.warnings == ()
    assert found.policy == Policy(
        scheduler_names=("allotment",),
        host_policy="spread",
        host_weight=3,
        fit_weight=7,
        multi_container=True,
        mig_order="listed",
        namespace_in_metrics=True,
        namespace_turns=False,
        plugin_backlog=9,
        tiers=((PluginUse("allotment"),),),
    )


def test_policies_that_look_ahead_weigh_the_host_themselves() -> None:
    text = deviceshare("deviceshare.SchedulePolicy: fill-ahead")
    assert parsed(text).policy.host_weight == 0
    own = "  - name: allotment\n    arguments: {allotment.HostPolicy: spread}\n"
    assert parsed(text + own).policy.host_weight == 1


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a: [", "conf:1:5: not YAML: "),
        ("a: 1\nb: \x00", "conf:2:4: not YAML: the character U+0000"),
        ("a: b\n---\nc: d", "conf:2:1: not YAML: "),
        ("- a", "conf:1:1: must be a mapping with actions and tiers"),
        ("actions: [allocate]", "conf:1:10: actions is a list; wanted: a text like"),
        (
            "actions: alocate",
            "conf:1:10: actions is 'alocate'; wanted: one of allocate, backfill, enqueue, preempt, "
            "reclaim; did you mean allocate?",
        ),
        ("actions: enqueue,, allocate", "actions is ''; wanted: one of allocate"),
        ("actions:", "conf:1:9: actions is empty; wanted: a text"),
        ("tiers: x", "conf:1:8: tiers is 'x'; wanted: a list of tiers"),
        ("tiers: [x]", "conf:1:9: tier 1 is 'x'; wanted: a mapping with a list of plugins"),
        ("tiers: [{plugins: x}]", "conf:1:19: plugins of tier 1 is 'x'; wanted: a mapping with"),
        ("tiers: [{plugins: [x]}]", "conf:1:20: a plugin of tier 1 is 'x'; wanted: a mapping with"),
        ("tiers: [{plugins: [{}]}]", "conf:1:20: a plugin of tier 1 has no name"),
        ("tiers: [{plugins: [{name: 5}]}]", "conf:1:27: the name of a plugin of tier 1 is 5"),
        (
            "tiers: [{plugins: [{name: deviceshare, arguments: x}]}]",
            "conf:1:51: arguments of plugin deviceshare is 'x'; wanted: a mapping",
        ),
        (
            deviceshare("deviceshare.SchedulePolicy: pack"),
            "conf:5:35: deviceshare.SchedulePolicy of plugin deviceshare is 'pack'; "
            "wanted: one of binpack, spread, none",
        ),
        (
            deviceshare("deviceshare.ScheduleWeight: 101"),
            "is 101; wanted: a whole number, at most 100",
        ),
        (
            deviceshare("deviceshare.KnownGeometriesCMName: A b"),
            "conf:5:42: deviceshare.KnownGeometriesCMName of plugin deviceshare is 'A b'; wanted",
        ),
        (
            file_of("allotment", "allotment.HostPolic: x"),
            "conf:5:7: unknown argument allotment.HostPolic of plugin allotment; did you mean "
            "allotment.HostPolicy?",
        ),
        (file_of("allotment", "allotment.HostPolicy: x"), "is 'x'; wanted: one of binpack"),
        (file_of("allotment", "allotment.HostWeight: 'x'"), "is 'x'; wanted: a whole number from"),
        (
            file_of("allotment", "allotment.FitWeight: -1"),
            "is -1; wanted: a whole number from",
        ),
        (
            file_of("allotment", "allotment.MultiContainerEnable: maybe"),
            "is 'maybe'; wanted: true or false",
        ),
        (
            file_of("allotment", "allotment.MigGeometryOrder: first"),
            "is 'first'; wanted: one of best-fit, least-stranded, listed",
        ),
        (file_of("allotment", "allotment.MigGeometryOrder:"), "is empty; wanted: one of"),
    ],
)
def test_mistakes(text: str, says: str) -> None:
    (problem,) = problems(text)
    assert problem.startswith("conf:")
    assert says in problem


def test_all_mistakes_are_told_at_once() -> None:
    text = deviceshare("deviceshare.SchedulePolicy: x", "deviceshare.ScheduleWeight: 5000")
    assert len(problems(f"actions: fly\n{text}")) == 3


_lines = st.sampled_from(
    (
        "actions: allocate",
        "tiers:",
        "- plugins:",
        "  - name: binpack",
        "  - name: deviceshare",
        "  - {name: drf, enableHierarchy: true}",
        "  - name: sla",
        "    enableJobOrder: no",
        "    arguments:",
        "      binpack.weight: 1e9999999999",
        "      binpack.resources: a, b",
        "      overcommit-factor: .nan",
        "      sla-waiting-time: 9h",
        "      deviceshare.ScheduleWeight: 0x1F",
        "      deviceshare.GPUExclusiveRules: [&a {b: c}, *a]",
        "      ? [x]",
        "configurations: [{name: allocate, arguments: {a: b}}]",
        "metrics: {type: x}",
        "&a x: *a",
        "<<: {}",
        '"\\ud800": "\\UFFFFFFFF"',
        "%YAML 7.7",
        "---",
    )
)
_texts = st.one_of(st.text(), st.lists(st.one_of(_lines, st.text(max_size=8))).map("\n".join))


def _refusal(text: str) -> tuple[str, ...]:
    try:
        return parsed(text)[2:]
    except policy.PolicyError as error:
        return error.problems


@given(_texts)
def test_any_text_is_a_policy_or_a_policy_error(text: str) -> None:
    assert all(problem.startswith("conf") for problem in _refusal(text))


QUOTED = """actions: "enqueue, allocate, backfill"
tiers:
- plugins:
  - name: priority
  - name: gang
- plugins:
  - name: binpack
    arguments:
      binpack.weight: "5"
      binpack.cpu: "1"
      binpack.memory: "1"
      binpack.resources: nvidia.com/gpu
      binpack.resources.nvidia.com/gpu: "10"
  - name: deviceshare
    arguments:
      deviceshare.VGPUEnable: "true"
      deviceshare.SchedulePolicy: "spread"
      deviceshare.ScheduleWeight: "20"
  - name: allotment
    arguments:
      allotment.HostWeight: "3"
      allotment.FitWeight: "0"
      allotment.MultiContainerEnable: "true"
"""


def test_a_file_with_quoted_numbers_is_the_same_policy_as_one_without() -> None:
    quoted = parsed(QUOTED)
    assert quoted.warnings == ()
    assert quoted.policy.device_weight == 20
    assert quoted.policy == parsed(QUOTED.replace('"', "")).policy
