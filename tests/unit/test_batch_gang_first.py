"""A group that runs and lost a member gets it back before others begin."""

import pytest

from allotment_proto.events import PodGone, PolicyLoaded
from allotment_proto.facts import PluginUse, Policy
from tests import build
from tests.unit.contest import Contest

TIERS = ((PluginUse("priority"), PluginUse("gang")), (PluginUse("drf"), PluginUse("capacity")))


@pytest.mark.parametrize("is_urgent", [False, True])
def test_what_a_running_gang_lacks_comes_before_newcomers_of_equal_priority(
    is_urgent: bool,
) -> None:
    """A member is made again while newcomers wait; a plugin behind orders by shares."""
    world = Contest(build.node("n1", 2))
    world.tell(PolicyLoaded(policy=Policy(tiers=TIERS), source="", text_sha256=""))
    gang = world.job("gang", 2, members=2)
    world.decide()
    world.run(gang)
    (new,) = world.job("new", 1, priority="high" if is_urgent else "low")
    world.tell(build.pod("lone", build.request(build.wants(16_000, 0)), created_ms=1))
    world.tell(PodGone(uid=gang[1], namespace="default", name=gang[1], rv=99))
    (again,) = world.pods("gang", 1, start=2)
    world.decide()
    assert world.placed() == {gang[0], new if is_urgent else again}
