"""A refused configuration is told once, with the place in its text, and its end is told once."""

from typing import Any

import msgspec

from allotment.core.explain.doctor import findings
from allotment.core.explain.history import story
from allotment.core.ledger import snapshot
from allotment.core.ledger.model import ClusterState
from allotment.core.ledger.state import apply
from allotment_proto.events import (
    DEVICE_CONFIG,
    SCHEDULER_CONFIG,
    ConfigurationChecked,
    PolicyLoaded,
)
from allotment_proto.facts import Policy, Problem
from allotment_watcher.config_checks import PROBLEMS_MAX, ConfigChecks, policy_problems

BAD = Problem("InvalidDeviceConfig", "config:3:", "migStrategy is 7")


def checks(state: ClusterState) -> tuple[ConfigChecks, list[Any]]:
    told: list[Any] = []
    return ConfigChecks(state, told.extend), told


def state_of(*events: Any) -> ClusterState:
    state = ClusterState()
    for seq, event in enumerate(events, 1):
        apply(state, event, seq)
    return state


def refused(*problems: Problem, kind: str = DEVICE_CONFIG) -> ConfigurationChecked:
    return ConfigurationChecked(kind=kind, source="config", problems=problems)


def test_only_news_is_told() -> None:
    found, told = checks(ClusterState())
    found.checked(DEVICE_CONFIG, "config", ())
    assert told == []
    for problems in ((BAD,), (BAD,), (), (), (BAD,)):
        found.checked(DEVICE_CONFIG, "config", problems)
    assert told == [refused(BAD), refused(), refused(BAD)]


def test_a_watcher_that_takes_over_knows_what_was_told() -> None:
    found, told = checks(state_of(refused(BAD)))
    found.checked(DEVICE_CONFIG, "config", (BAD,))
    assert told == []
    found.checked(DEVICE_CONFIG, "config", ())
    assert told == [refused()]


def test_kinds_are_told_apart_and_long_lists_are_cut() -> None:
    found, told = checks(ClusterState())
    found.checked(SCHEDULER_CONFIG, "file", [BAD] * (PROBLEMS_MAX + 3))
    found.checked(DEVICE_CONFIG, "config", (BAD,))
    first, second = told
    assert (first.kind, second.kind) == (SCHEDULER_CONFIG, DEVICE_CONFIG)
    assert len(first.problems) == PROBLEMS_MAX + 1
    assert first.problems[-1].message == "and 3 more; allot policy check shows all"


def test_the_place_is_taken_from_the_mistakes_of_a_policy() -> None:
    text = "/etc/x.conf:4:9: deviceshare.SchedulePolicy is 'up'; wanted: one of binpack, spread"
    at, whole = policy_problems("/etc/x.conf", [text, "cannot be read: no such file"])
    assert (at.place, at.message.split()[0]) == ("/etc/x.conf:4:9:", "deviceshare.SchedulePolicy")
    assert (whole.place, whole.message) == ("/etc/x.conf:", "cannot be read: no such file")


def test_the_doctor_says_what_is_wrong_and_what_is_in_force() -> None:
    loaded = PolicyLoaded(policy=Policy(), source="file", text_sha256="")
    by_policy = msgspec.structs.replace(refused(BAD, kind=SCHEDULER_CONFIG), source="file")
    state = state_of(loaded, by_policy, refused(BAD))
    devices, scheduler = findings(state, 0)
    assert (devices.subject, devices.seq) == ("device configuration config", 3)
    assert "the built-in one stays active" in devices.remedy
    assert (scheduler.subject, scheduler.seq) == ("scheduler configuration file", 2)
    assert scheduler.message == "config:3: migStrategy is 7"
    assert "that of seq 1 (allot log show 1) stays active" in scheduler.remedy
    restored = snapshot.decode(snapshot.encode(state))
    assert findings(restored, 0) == findings(state, 0)
    apply(state, refused(), 4)
    assert [found.subject for found in findings(state, 0)] == ["scheduler configuration file"]


def test_it_decides_nothing_and_is_a_line_in_the_log() -> None:
    before = ClusterState()
    after = state_of(refused(BAD))
    assert (before.policy, before.room_seq) == (after.policy, after.room_seq)
    assert story.line(refused(BAD, BAD)) == (
        "device configuration from config refused: "
        "InvalidDeviceConfig: config:3: migStrategy is 7 (and 1 more)"
    )
    assert story.line(refused()) == "device configuration from config: active as written"


USELESS = Problem("ConfigWithoutEffect", "config:8:11:", "plugin usage: read, has no effect")


def test_warnings_are_told_once_and_refuse_nothing() -> None:
    found, told = checks(ClusterState())
    for problems, warnings in (((), (USELESS,)), ((), (USELESS,)), ((BAD,), (USELESS,)), ((), ())):
        found.checked(SCHEDULER_CONFIG, "config", problems, warnings)
    warned = ConfigurationChecked(kind=SCHEDULER_CONFIG, source="config", warnings=(USELESS,))
    both = msgspec.structs.replace(warned, problems=(BAD,))
    assert told == [warned, both, refused(kind=SCHEDULER_CONFIG)]
    assert story.line(warned) == (
        "scheduler configuration from config active, with warnings: "
        "ConfigWithoutEffect: config:8:11: plugin usage: read, has no effect"
    )
    state = state_of(warned)
    (said,) = findings(state, 0)
    assert (said.severity, said.subject, said.seq) == (
        "warning",
        "scheduler configuration config",
        1,
    )
    assert said.message == "config:8:11: plugin usage: read, has no effect"
    assert "fix or remove that line" in said.remedy
    assert findings(snapshot.decode(snapshot.encode(state)), 0) == [said]
    apply(state, refused(kind=SCHEDULER_CONFIG), 2)
    assert findings(state, 0) == []
