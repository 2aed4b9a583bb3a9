"""A Binding of a gang that fails: who is bound stays, the other one is tried again."""

from allotment.core.check import check
from allotment_binder.deciding import accepted, decide
from allotment_proto.events import BindFailed, Bound, Decided, StageTime
from allotment_proto.messages import MESSAGE_VERSION, Proposal
from tests import build
from tests.unit.test_batch_rounds import World

STAGE = StageTime("binder", "b", 1, 2)


def settle(world: World, uid: str, code: str = "") -> None:
    """The Binding of a pod came to this end."""
    held = world.state.pods[uid].allocation
    assert held is not None
    bound = Bound(uid=uid, namespace="default", name=uid, node=held.node, decision=held.seq)
    if not code:
        world.tell(bound)
        return
    world.tell(
        BindFailed(
            uid=uid,
            namespace="default",
            name=uid,
            node=held.node,
            decision=held.seq,
            code=code,
            message="refused",
            holdings=held.holdings,
        )
    )


def decided(world: World) -> Decided:
    """A round through the binder's own decision."""
    state = world.state
    found = world.round(list(state.pending))
    proposal = Proposal(
        v=MESSAGE_VERSION,
        cycle="c",
        basis=state.seq,
        policy=state.policy_seq,
        batch=tuple(state.pending),
        placements=found.placements,
        refusals=found.refusals,
        wholes=found.wholes,
        shorts=found.shorts,
        admissions=found.admissions,
        evictions=found.evictions,
        holds=found.holds,
    )
    made = decide(state, proposal, 1, STAGE)
    assert isinstance(made, Decided)
    world.tell(made)
    assert len(accepted(state, made, world.seq)) == len(made.placements)
    return made


def test_one_of_four_bindings_fails_and_that_one_is_placed_anew() -> None:
    world = World(build.node("n1", 4))
    uids = world.gang("a", 4)
    assert decided(world).wholes == (tuple(uids),)
    for uid in uids[:3]:
        settle(world, uid)
    settle(world, uids[3], "BindConflict")
    assert world.placed() == set(uids[:3])
    job = world.rounds.session().jobs["default/a"]
    assert job.ready_count == 3, "the bound ones count for the minimum"
    again = decided(world)
    assert [p.uid for p in again.placements] == [uids[3]]
    assert again.wholes == ((uids[3],),), "what the group lacks is placed whole"
    assert again.shorts == ()
    settle(world, uids[3])
    assert world.state.reserved == {}
    assert check(world.state) == []


def test_the_one_that_failed_waits_when_its_place_is_taken_and_nobody_bound_goes() -> None:
    world = World(build.node("n1", 4))
    uids = world.gang("a", 4)
    decided(world)
    for uid in uids[:3]:
        settle(world, uid)
    settle(world, uids[3], "BindConflict")
    world.tell(build.node("n1", 3, rv=2))  # its card is gone
    waits = decided(world)
    assert waits.placements == ()
    (short,) = waits.shorts
    assert (short.waiting, short.wanted, short.together) == (1, 1, 0)
    assert "3 Bound" in short.message
    assert "1 Pending" in short.message
    assert world.placed() == set(uids[:3])
    world.tell(build.node("n1", 4, rv=3))
    assert [p.uid for p in decided(world).placements] == [uids[3]]
