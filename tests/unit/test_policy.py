"""The configuration file: what is read, and every mistake with its place, value and remedy."""

import pytest

from allotment.core import policy
from allotment_proto.facts import Policy


def deviceshare(*arguments: str) -> str:
    lines = "".join(f"\n      {argument}" for argument in arguments)
    return f"tiers:\n- plugins:\n  - name: deviceshare\n    arguments:{lines}\n"


def parsed(text: str) -> policy.Parsed:
    return policy.parse(text, "conf", ("allotment",))


@pytest.mark.parametrize("text", ["", "{}", "actions: allocate", "tiers: []", "# nothing"])
def test_defaults(text: str) -> None:
    assert parsed(text) == policy.Parsed(Policy(scheduler_names=("allotment",)), ())


@pytest.mark.parametrize(
    ("argument", "field", "value"),
    [
        ("deviceshare.SchedulePolicy: spread", "device_policy", "spread"),
        ("deviceshare.SchedulePolicy: ''", "device_policy", "none"),
        ("deviceshare.ScheduleWeight: 0", "device_weight", 0),
        ("deviceshare.VGPUEnable: 'T'", "families", ("vgpu",)),
        ("deviceshare.GPUNumberEnable: true", "families", ("gpushare",)),
        ("deviceshare.VGPUEnable: false", "families", ()),
    ],
)
def test_deviceshare_arguments(argument: str, field: str, value: object) -> None:
    found = parsed(deviceshare(argument))
    assert getattr(found.policy, field) == value
    assert found.warnings == ()


def test_our_own_arguments() -> None:
    text = deviceshare(
        "allotment.HostPolicy: spread",
        "allotment.HostWeight: 3",
        "allotment.MultiContainerEnable: true",
    ).replace("deviceshare", "allotment")
    found = parsed(text).policy
    assert (found.host_policy, found.host_weight, found.multi_container) == ("spread", 3, True)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a: [", "conf:1:5: not YAML: "),
        ("- a", "conf: must be a mapping with actions and tiers"),
        ("actions: [allocate]", "conf: actions is ['allocate']; wanted: a text like"),
        ("actions: alocate", "conf: actions is 'alocate'; wanted: one of allocate, backfill"),
        ("tiers: x", "conf: tiers is 'x'; wanted: a list of tiers"),
        ("tiers: [x]", "conf: tiers[0] is 'x'; wanted: a mapping with a list of plugins"),
        ("tiers: [{plugins: [x]}]", "conf: tiers[0].plugins[0] is 'x'; wanted: a mapping with"),
        (
            "tiers: [{plugins: [{name: deviceshare, arguments: x}]}]",
            "conf: tiers[0].plugins[0].arguments is 'x'; wanted: a mapping",
        ),
        (
            deviceshare("deviceshare.SchedulePolicy: pack"),
            "conf: tiers[0].plugins[0].arguments.deviceshare.SchedulePolicy is 'pack'; "
            "wanted: one of binpack, spread, none",
        ),
        (deviceshare("deviceshare.ScheduleWeight: 1.5"), "is 1.5; wanted: a whole number from 0"),
        (deviceshare("deviceshare.ScheduleWeight: true"), "is True; wanted: a whole number"),
        (deviceshare("deviceshare.ScheduleWeight: -1"), "is -1; wanted: a whole number"),
        (deviceshare("deviceshare.VGPUEnable: maybe"), "is 'maybe'; wanted: true or false"),
        (
            deviceshare("allotment.Host: x").replace("deviceshare", "allotment"),
            "allotment.Host is 'x'; wanted: allotment.HostPolicy",
        ),
    ],
)
def test_mistakes(text: str, says: str) -> None:
    with pytest.raises(policy.PolicyError) as caught:
        parsed(text)
    assert says in str(caught.value)


def test_all_mistakes_are_told_at_once() -> None:
    text = deviceshare("deviceshare.SchedulePolicy: x", "deviceshare.ScheduleWeight: y")
    with pytest.raises(policy.PolicyError) as caught:
        parsed(text)
    assert len(caught.value.problems) == 2


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{1: a, shiny: b}", "conf: 1: unknown key"),
        ("actions: allocate, preempt", "conf: actions: preempt is read but does nothing yet"),
        ("tiers: [{plugins: [{name: gang}]}]", "plugin gang is read but does nothing yet"),
        (deviceshare("deviceshare.Other: 1"), "deviceshare.Other: is read but does nothing yet"),
    ],
)
def test_what_has_no_effect_is_said(text: str, says: str) -> None:
    assert any(says in warning for warning in parsed(text).warnings)
