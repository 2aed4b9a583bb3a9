"""Amounts beyond what a record carries: whoever asks for them keeps nobody else from a place."""

import pytest

from allotment_binder.deciding import Deciding
from allotment_proto import codec
from allotment_proto.events import Decided, Envelope, QueueObserved, StageTime
from allotment_proto.facts import AMOUNT_MOST, PluginUse, PodRequest, Policy
from allotment_proto.messages import MESSAGE_VERSION, Proposal
from allotment_proto.volcano import keys
from tests import build
from tests.unit.kube_json import asks
from tests.unit.rounds_world import World

COUNTED = "example.com/x"
LIMIT = (("cpu", 100_000), ("memory", 1 << 50), (COUNTED, 1_000), (keys.VGPU_MEMORY, 10_000_000))
HOSTILE = tuple(f"h{number}" for number in range(5))
BOTH = ("enqueue", "allocate")

CARDS = asks({keys.VGPU_NUMBER: 64, keys.VGPU_MEMORY: 10**15}).request
"""The watcher lets this pass: each amount is one that 64 bits take, their product is not."""
MOST = build.request(build.wants(), extended=((COUNTED, AMOUNT_MOST),))
"""The most that a fact carries."""


def world_with(plugin: str, actions: tuple[str, ...]) -> World:
    tiers = ((PluginUse("gang"),), (PluginUse(plugin),))
    node = build.node("n1", extended=((COUNTED, 4), (keys.VGPU_MEMORY, 32_000)))
    world = World(node, policy=Policy(tiers=tiers, actions=actions))
    world.tell(QueueObserved(uid="q", name="default", rv=2, capability=LIMIT))
    return world


def decided_over_the_wire(world: World, batch: tuple[str, ...]) -> Decided:
    """The scorer's round as the binder reads it, and the binder's decision as the log reads it."""
    found = world.round(list(batch))
    proposal = Proposal(
        v=MESSAGE_VERSION,
        cycle="c",
        basis=world.seq,
        policy=0,
        batch=batch,
        placements=found.placements,
        refusals=found.refusals,
        stages=(),
        wholes=found.wholes,
        shorts=found.shorts,
        admissions=found.admissions,
    )
    heard = codec.decode_message(Proposal, codec.encode(proposal))
    answer = Deciding(world.state).decide(heard, 1, StageTime("binder", "b", 1, 2))
    assert isinstance(answer.decided, Decided)
    envelope = Envelope(at_ms=1, by="binder/b", events=(answer.decided,))
    (event,) = codec.decode_envelope(codec.encode(envelope)).events
    assert isinstance(event, Decided)
    return event


@pytest.mark.parametrize("wanted", [CARDS, MOST], ids=["of cards", "counted"])
@pytest.mark.parametrize(
    ("plugin", "actions"),
    [
        ("capacity", BOTH[1:]),
        ("capacity", BOTH),
        ("proportion", BOTH[1:]),
        ("proportion", BOTH),
        ("overcommit", BOTH),
    ],
)
def test_five_hostile_pods_and_an_honest_one(
    plugin: str, actions: tuple[str, ...], wanted: PodRequest
) -> None:
    world = world_with(plugin, actions)
    for uid in HOSTILE:
        world.tell(build.pod(uid, wanted, queue="default"))
    world.tell(build.pod("honest", queue="default"))
    decided = decided_over_the_wire(world, (*HOSTILE, "honest"))
    assert [placement.uid for placement in decided.placements] == ["honest"]
    assert {refusal.uid for refusal in decided.refusals} == set(HOSTILE)
    world.tell(decided)
    assert world.placed() == {"honest"}
    quotas = [short for refusal in decided.refusals for short in refusal.quota]
    assert len(quotas) >= len(HOSTILE), "each is told the amounts"
    assert wanted is CARDS or all(short.wants == AMOUNT_MOST for short in quotas)


def test_what_is_held_is_bounded_too() -> None:
    """Each holds what a record carries; together it is more."""
    world = world_with("capacity", BOTH)
    for uid in HOSTILE:
        world.tell(build.pod(uid, MOST, queue="default", node="n1", phase="Running"))
    wanted = build.request(build.wants(), extended=((COUNTED, 1),))
    world.tell(build.pod("late", wanted, queue="default"))
    world.tell(build.pod("honest", queue="default"))
    decided = decided_over_the_wire(world, ("late", "honest"))
    assert [placement.uid for placement in decided.placements] == ["honest"]
    (short,) = decided.refusals[0].quota
    assert (short.resource, short.wants) == (COUNTED, 1_000)
    assert short.held == AMOUNT_MOST
