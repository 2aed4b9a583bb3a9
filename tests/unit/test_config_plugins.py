"""Plugins of a configuration file: names, switches, tiers, and what only together is wrong."""

import pytest

from allotment.core.config.known import PLUGINS, PLUGINS_WITHOUT_EFFECT
from allotment.core.plugin_arguments import OFF_BY_DEFAULT, ON_BY_DEFAULT, is_on, plugin
from allotment_proto.facts import PluginUse
from tests.unit.config_files import own_arguments, parsed, problems, use_of, warning


@pytest.mark.parametrize("name", PLUGINS)
def test_every_plugin_that_acts_is_read_without_a_word(name: str) -> None:
    use = use_of(name)
    assert (use.off, use.on, own_arguments(use)) == ((), (), ())


@pytest.mark.parametrize("name", PLUGINS_WITHOUT_EFFECT)
def test_later_plugins_are_read_and_said(name: str) -> None:
    found = parsed(f"tiers: [{{plugins: [{{name: {name}, arguments: {{a: [b]}}}}]}}]")
    assert found.warnings == (f"conf:1:27: plugin {name}: read, has no effect",)
    assert plugin(found.policy, name) == PluginUse(name)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("gangs", "unknown plugin 'gangs'; did you mean gang?"),
        ("capacity_card", "unknown plugin 'capacity_card'; did you mean capacity-card?"),
        ("Binpack", "unknown plugin 'Binpack'; did you mean binpack?"),
        ("xyzzy", "unknown plugin 'xyzzy'; known are priority, gang, "),
    ],
)
def test_a_plugin_that_nobody_knows_refuses_the_file(name: str, says: str) -> None:
    (problem,) = problems(f"tiers: [{{plugins: [{{name: {name}}}]}}]")
    assert problem.startswith(f"conf:1:27: {says}")


def switched(*lines: str) -> str:
    return "tiers:\n- plugins:\n  - name: gang\n" + "".join(f"    {line}\n" for line in lines)


@pytest.mark.parametrize("switch", ON_BY_DEFAULT)
def test_switches_that_are_on_unless_said(switch: str) -> None:
    found = parsed(switched(f"{switch}: false"))
    assert found.warnings == ()
    use = PluginUse("gang", off=(switch,))
    assert found.policy.tiers == ((use,),)
    assert not is_on(use, switch)
    assert is_on(PluginUse("gang"), switch)
    assert parsed(switched(f"{switch}: true")).policy.tiers == ((PluginUse("gang"),),)


@pytest.mark.parametrize("switch", OFF_BY_DEFAULT)
def test_switches_that_are_off_unless_said(switch: str) -> None:
    found = parsed(switched(f"{switch}: true"))
    use = PluginUse("gang", on=(switch,))
    assert found.policy.tiers == ((use,),)
    assert is_on(use, switch)
    assert not is_on(PluginUse("gang"), switch)
    assert parsed(switched(f"{switch}: off", "enableJobOrder:")).policy.tiers == (
        (PluginUse("gang"),),
    )


def test_a_switch_that_is_none_cannot_be_asked_for() -> None:
    with pytest.raises(KeyError):
        is_on(PluginUse("gang"), "enabledPreemptable")


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (
            "enabledPreemptable: false",
            "unknown key enabledPreemptable of plugin gang, ignored; "
            "did you mean enablePreemptable?",
        ),
        ("enableOverused: false", "did you mean enabledOverused?"),
        ("enablejobready: false", "did you mean enableJobReady?"),
        ("argument: {}", "unknown key argument of plugin gang, ignored; did you mean arguments?"),
    ],
)
def test_a_switch_spelt_otherwise_is_ignored_and_said(line: str, says: str) -> None:
    found = parsed(switched(line))
    assert found.policy.tiers == ((PluginUse("gang"),),)
    assert found.warnings[0].startswith("conf:4:5: ")
    assert says in found.warnings[0]


def test_a_switch_that_is_no_truth_refuses_the_file() -> None:
    (problem,) = problems(switched("enableJobOrder: 'false'"))
    assert problem == (
        "conf:4:21: enableJobOrder of plugin gang is 'false'; wanted: true or false without quotes"
    )


def test_tiers_without_plugins_are_left_out() -> None:
    found = parsed("tiers:\n- plugins:\n- plugins: [{name: gang}]\n- {}\n- {plugin: []}")
    assert found.policy.tiers == ((PluginUse("gang"),),)
    assert [line.split(";")[0] for line in found.warnings] == [
        "conf:2:3: tier 1 has no plugins",
        "conf:4:3: tier 3 has no plugins",
        "conf:5:4: unknown key plugin in tier 4, ignored",
        "conf:5:3: tier 4 has no plugins",
    ]


def test_a_plugin_that_is_listed_twice_counts_once() -> None:
    text = (
        "tiers:\n- plugins:\n  - name: gang\n- plugins:\n  - name: gang\n    enableJobOrder: no\n"
    )
    found = parsed(text)
    assert found.policy.tiers == ((PluginUse("gang"),),)
    assert found.warnings == (
        "conf:5:11: plugin gang is listed twice; this one is left out, the one in line 3 counts",
    )


def tiers(*names: str) -> str:
    """One tier a line; the first plugin's name begins in column 20."""
    return "tiers:\n" + "".join(f"- plugins: [{{name: {name}}}]\n" for name in names)


HIDES = (
    "conf:2:20: plugin overcommit in tier 1 hides the quota of plugin {} in tier 2 (line 3) when "
    "jobs are enqueued: its permit ends the vote; put both into one tier"
)


@pytest.mark.parametrize("quota", ["proportion", "capacity", "capacity-card"])
def test_a_permit_in_an_earlier_tier_hides_a_quota(quota: str) -> None:
    assert warning(tiers("overcommit", quota)) == HIDES.format(quota)
    for harmless in (
        tiers("overcommit}, {name: " + quota),
        tiers(quota, "overcommit"),
        tiers("overcommit, enableJobEnqueued: false", quota),
        tiers("overcommit", f"{quota}, enableJobEnqueued: false"),
        tiers("sla", quota),
    ):
        assert parsed(harmless).warnings == ()


def test_hierarchical_drf_beside_proportion_is_refused() -> None:
    (problem,) = problems(tiers("drf, enableHierarchy: true}, {name: proportion"))
    assert problem.startswith("conf:2:20: plugin drf with enableHierarchy cannot be in one tier")
    apart = warning(tiers("drf, enableHierarchy: true", "proportion"))
    assert apart == "conf:2:20: enableHierarchy of plugin drf has no effect: shares are flat"
    assert parsed(tiers("drf}, {name: proportion")).warnings == ()
