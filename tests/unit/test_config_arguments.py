"""Arguments of plugins: their types, bounds and defaults, and what is said of the others."""

import pytest

from allotment.core.config.known import PLUGINS
from allotment.core.plugin_arguments import Kind, argument, by_prefix, number, plugin
from allotment_proto.facts import Policy
from tests.unit.config_files import file_of, own_arguments, parsed, problems, use_of, warning


def test_an_argument_that_is_not_under_arguments() -> None:
    text = "tiers:\n- plugins:\n  - name: sla\n    arguments:\n    sla-waiting-time: 1h\n"
    assert warning(text) == (
        "conf:5:5: sla-waiting-time is an argument of plugin sla and ignored here; put it under "
        "arguments"
    )


def test_every_argument_is_read_in_its_own_type() -> None:
    given = {Kind.INTEGER: "7", Kind.BOOLEAN: "'T'", Kind.DECIMAL: "7.25", Kind.DURATION: "7s"}
    wanted = {Kind.INTEGER: 7, Kind.BOOLEAN: True, Kind.DECIMAL: 7_250, Kind.DURATION: 7_000}
    for name, arguments in PLUGINS.items():
        for key, known in arguments.items():
            if known.is_used:
                use = use_of(name, f"{key}: {given[known.kind]}")
                assert own_arguments(use) == ((key, wanted[known.kind]),)
            else:
                says = f"conf:5:7: {key} of plugin {name}: read, has no effect"
                assert warning(file_of(name, f"{key}: x")).startswith(says)


def test_defaults_are_those_of_the_specification() -> None:
    def defaults(name: str) -> list[int | bool]:
        return [argument.default for argument in PLUGINS[name].values() if argument.is_used]

    assert defaults("nodeorder") == [1, 0, 2, 2, 1, 3, 1, 2, 36]
    assert defaults("binpack") == [1, 1, 1]
    assert defaults("overcommit") == [1_200]
    assert defaults("capacity-card") == [False, 1_000, True]
    assert defaults("predicates") == [True] * 8 + [False]
    assert defaults("sla") == [0]
    assert defaults("nodegroup") == [True]
    assert defaults("resource-strategy-fit") == [10]


def test_what_is_given_goes_before_the_default() -> None:
    use = use_of("nodeorder", "leastrequested.weight: 0")
    assert number(use, PLUGINS["nodeorder"], "leastrequested.weight") == 0
    assert number(use, PLUGINS["nodeorder"], "imagelocality.weight") == 1
    assert argument(use, "leastrequested.weight", 5) == 0
    assert argument(use, "leastrequested.weight", "text") == "text"
    with pytest.raises(KeyError):
        number(use, PLUGINS["nodeorder"], "nodeorder.weight")
    assert plugin(Policy(tiers=((use,),)), "binpack") is None


@pytest.mark.parametrize(
    ("name", "line", "says"),
    [
        (
            "binpack",
            "binpack.weight: '10.5'",
            "5:23: binpack.weight of plugin binpack is '10.5'; "
            "wanted: a whole number; the default 1 stays",
        ),
        ("binpack", "binpack.weight: 1.0", "is 1.0; wanted: a whole number; the default 1 stays"),
        ("binpack", "binpack.cpu: -1", "is -1; wanted: at least 0; the default 1 stays"),
        (
            "binpack",
            "binpack.wieght: 1",
            "5:7: unknown argument binpack.wieght of plugin binpack, "
            "ignored; did you mean binpack.weight?",
        ),
        (
            "binpack",
            "binpack.resources.x/y: 2",
            "5:7: binpack.resources.x/y of plugin binpack has "
            "no effect: x/y is not listed in binpack.resources",
        ),
        (
            "binpack",
            "binpack.resources: [x/y]",
            "is a list; wanted: a text of resource names with "
            "commas between them; no resource is listed",
        ),
        ("nodeorder", "nodeorder.weight: 5", "ignored; there is none; nodeorder has a weight for"),
        ("drf", "drf.namespaceWeight: 5", "ignored; it no longer exists"),
        ("gang", "gang.x: 5", "unknown argument gang.x of plugin gang, ignored; it takes none"),
        ("predicates", "predicate.GPUSharingEnable: true", "ignored; it is deviceshare.GPUSharing"),
        (
            "predicates",
            "predicate.NodePortsEnable: 1",
            "is 1; wanted: true or false; the default true stays",
        ),
        (
            "overcommit",
            "overcommit-factor: 0.9",
            "5:26: overcommit-factor of plugin overcommit is "
            "0.9; wanted: at least 1; the default 1.2 stays",
        ),
        ("overcommit", "overcommit-factor: 'two'", "is 'two'; wanted: a number; the default 1.2"),
        ("overcommit", "overcommit-factor: .nan", "is .nan; wanted: a number"),
        ("overcommit", "overcommit-factor: -1e999999999", "wanted: at least 1; the default 1.2"),
        (
            "capacity-card",
            "nodeOrderWeight: 0",
            "nodeOrderWeight of plugin capacity-card is 0; wanted: at least 0.001; the default 1 "
            "stays",
        ),
        (
            "capacity-card",
            "cardUnlimitedCpuMemory: 1",
            "is 1; wanted: true or false; the default false stays",
        ),
        ("sla", "sla-waiting-time: 5", "is 5; wanted: a duration like 1h30m; the default stays"),
        ("sla", "sla-waiting-time: 1 day", "is '1 day'; wanted: a duration like 1h30m"),
        ("sla", "sla-waiting-time: -1h", "is '-1h'; wanted: at least 1 ms; the default stays"),
        ("nodegroup", "strickt: true", "did you mean strict?"),
        ("nodegroup", "enablePreferredOrder: true", "plugin nodegroup: read, has no effect"),
        ("resource-strategy-fit", "resourceStrategyFitWeight: -1", "at least 0; the default 10 st"),
        (
            "resource-strategy-fit",
            "sra: {enable: true}",
            "5:7: sra of plugin resource-strategy-fit: read, has no effect",
        ),
        ("resource-strategy-fit", "resource: {}", "did you mean resources?"),
        (
            "resource-strategy-fit",
            "resources: {'*': {type: MostAllocated}}",
            "5:19: resources.* of plugin resource-strategy-fit is ignored: only one asterisk",
        ),
    ],
)
def test_what_is_left_aside_is_said(name: str, line: str, says: str) -> None:
    found = parsed(file_of(name, line))
    ((use,),) = found.policy.tiers
    assert (use.name, own_arguments(use)) == (name, ())
    assert found.warnings[0].startswith("conf:5:")
    assert says in found.warnings[0]
    assert len(found.warnings) == 1


@pytest.mark.parametrize(
    ("name", "line", "says"),
    [
        (
            "binpack",
            "binpack.weight: 1001",
            "conf:5:23: binpack.weight of plugin binpack is 1001; "
            "wanted: a whole number, at most 1000",
        ),
        ("overcommit", "overcommit-factor: 1.0e+9", "a number, at most 1000"),
        ("overcommit", "overcommit-factor: 1e999999999", "a number, at most 1000"),
        ("sla", "sla-waiting-time: 999999h", "wanted: a duration like 1h30m, at most"),
        ("resource-strategy-fit", "resources: []", "is a list; wanted: a mapping from resource"),
        (
            "resource-strategy-fit",
            "resources: {cpu: 1}",
            "conf:5:24: resources.cpu of plugin "
            "resource-strategy-fit is 1; wanted: a mapping with type and weight",
        ),
    ],
)
def test_what_cannot_be_followed_is_refused(name: str, line: str, says: str) -> None:
    (problem,) = problems(file_of(name, line))
    assert says in problem


def test_a_fraction_is_rounded_to_thousandths() -> None:
    found = parsed(file_of("overcommit", "overcommit-factor: 1.23456"))
    assert found.policy.tiers[0][0].arguments == (("overcommit-factor", 1_235),)
    assert found.warnings == (
        "conf:5:26: overcommit-factor of plugin overcommit is rounded to 1.235",
    )
    assert use_of("overcommit", "overcommit-factor: 2").arguments == (("overcommit-factor", 2_000),)


def test_binpack_weighs_the_resources_that_are_listed() -> None:
    use = use_of(
        "binpack",
        "binpack.weight: 10",
        "binpack.resources: ' nvidia.com/gpu, example.com/foo,'",
        "binpack.resources.nvidia.com/gpu: 2",
    )
    resources = (("example.com/foo", 1), ("nvidia.com/gpu", 2))
    assert by_prefix(use, "binpack.resources.") == resources
    assert number(use, PLUGINS["binpack"], "binpack.weight") == 10


def test_a_resource_strategy_has_a_direction_and_a_weight() -> None:
    use = use_of(
        "resource-strategy-fit",
        "resourceStrategyFitWeight: 5",
        "resources:",
        "  nvidia.com/gpu: {type: MostAllocated, weight: 2}",
        "  cpu: {type: LeastAllocated}",
        "  example.com/*: {weight: 3}",
    )
    assert number(use, PLUGINS["resource-strategy-fit"], "resourceStrategyFitWeight") == 5
    assert by_prefix(use, "most.") == (("nvidia.com/gpu", 2),)
    assert by_prefix(use, "least.") == (("cpu", 1), ("example.com/*", 3))


def test_a_resource_strategy_that_is_not_understood_has_the_default() -> None:
    text = file_of("resource-strategy-fit", "resources: {a/b: {type: Most, weight: 0, wait: 1}}")
    found = parsed(text)
    assert found.policy.tiers[0][0].arguments == (("least.a/b", 1),)
    assert [line.split(";")[0] for line in found.warnings] == [
        "conf:5:48: unknown key wait in resources.a/b of plugin resource-strategy-fit, ignored",
        "conf:5:31: resources.a/b of plugin resource-strategy-fit: type is 'Most'",
        "conf:5:45: resources.a/b of plugin resource-strategy-fit: weight is 0",
    ]


@pytest.mark.parametrize("quotes", ["", "'", '"'])
@pytest.mark.parametrize(
    ("name", "key", "text", "value"),
    [
        ("binpack", "binpack.weight", "5", 5),
        ("nodeorder", "leastrequested.weight", "0", 0),
        ("overcommit", "overcommit-factor", "1.5", 1_500),
        ("overcommit", "overcommit-factor", "2", 2_000),
        ("capacity-card", "cardUnlimitedCpuMemory", "true", True),
        ("predicates", "predicate.NodePortsEnable", "false", False),
        ("resource-strategy-fit", "resourceStrategyFitWeight", "7", 7),
    ],
)
def test_a_quoted_number_or_boolean_counts_like_one_without_quotes(
    quotes: str, name: str, key: str, text: str, value: int | bool
) -> None:
    assert own_arguments(use_of(name, f"{key}: {quotes}{text}{quotes}")) == ((key, value),)


def test_quoted_weights_by_resource_count() -> None:
    lines = ["binpack.resources: nvidia.com/gpu", 'binpack.resources.nvidia.com/gpu: "10"']
    assert by_prefix(use_of("binpack", *lines), "binpack.resources.") == (("nvidia.com/gpu", 10),)
    fit = use_of("resource-strategy-fit", "resources: {cpu: {type: MostAllocated, weight: '3'}}")
    assert by_prefix(fit, "most.") == (("cpu", 3),)


@pytest.mark.parametrize("text", ["'0x10'", "'1_0'", "'ten'", "' 5'", "''", "'" + "9" * 30 + "'"])
def test_a_text_that_is_no_number_leaves_the_default(text: str) -> None:
    assert "wanted: a whole number; the default 1 stays" in warning(
        file_of("binpack", f"binpack.weight: {text}")
    )
