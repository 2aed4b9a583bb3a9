"""Every change that is said to make a pod fit does so: it is told to a copy of the state as the
events that the watcher would append, and the scorer's own round places the pod there. And every
reason that is counted is one that `fits` gives.
"""

from collections import Counter
from collections.abc import Iterable

import hypothesis
import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from allotment.core.explain.causes import advice
from allotment.core.explain.causes.counterfactual import (
    Asks,
    Bench,
    Deed,
    Elsewhere,
    Ended,
    Fewer,
    Found,
    Ranked,
    Uncordoned,
    asked_most,
    found_on,
    rank,
)
from allotment.core.explain.causes.nodes import codes, funnel
from allotment.core.explain.causes.obstacles import FITS, present
from allotment.core.explain.pod import fits_empty_cluster
from allotment.core.explain.rows.words import line_text
from allotment.core.ledger import snapshot
from allotment.core.ledger.model import ClusterState
from allotment.core.ledger.state import apply
from allotment.core.placement.cycle import run_cycle
from allotment.core.placement.evaluator import Evaluator
from allotment.core.placement.rules.interpod import look_around, situated
from allotment.core.placement.rules.predicates import CORDON_TAINT, fits
from allotment.core.queues.round.rounds import Rounds
from allotment.core.queues.round.verdict import GroupVerdict, group_verdict, verdict
from allotment_board.board import Board
from allotment_proto.events import Event, PodGone, PriorityClassObserved
from allotment_proto.facts import PluginUse, Policy
from tests import build
from tests.property.batch_world import OPS, STEPS, Op, World
from tests.strategies import every_policy
from tests.strategies.life import lives
from tests.unit import rounds_world


def carried_out(state: ClusterState, uids: Iterable[str], deed: Deed) -> ClusterState:
    """The state after the events by which the change would come."""
    copy = snapshot.decode(snapshot.encode(state))
    for event in _events(copy, list(uids), deed):
        apply(copy, event, copy.seq + 1)
    return copy


def _events(state: ClusterState, uids: list[str], deed: Deed) -> list[Event]:
    pods = [state.pods[uid].fact for uid in uids]
    rv = state.seq + 1_000_000
    match deed:
        case Asks(edit):
            return [msgspec.structs.replace(f, request=edit(f.request), rv=rv) for f in pods]
        case Ended(gone):
            facts = [state.pods[uid].fact for uid in gone]
            return [PodGone(uid=f.uid, namespace=f.namespace, name=f.name, rv=f.rv) for f in facts]
        case Uncordoned(name):
            fact = state.nodes[name].fact
            assert fact is not None
            taints = tuple(t for t in fact.taints if t.key != CORDON_TAINT)
            return [
                msgspec.structs.replace(fact, ready=True, unschedulable=False, taints=taints, rv=rv)
            ]
        case Elsewhere(queue):
            groups = {f.group: state.groups[f.group].fact for f in pods if f.group}
            return [
                *(
                    msgspec.structs.replace(g, queue=queue, rv=rv)
                    for g in groups.values()
                    if g is not None
                ),
                *(msgspec.structs.replace(f, queue=queue, rv=rv) for f in pods if not f.group),
            ]
        case Ranked(name, value):
            keys = {f.group for f in pods if f.group}
            known = [g for g in (state.groups[key].fact for key in keys) if g is not None]
            return [
                *(msgspec.structs.replace(g, priority_class=name, rv=rv) for g in known),
                *(
                    msgspec.structs.replace(
                        f, priority=value, priority_class=name, class_priority=None, rv=rv
                    )
                    for f in pods
                ),
            ]
        case Fewer(least):
            found = state.groups[pods[0].group].fact
            assert found is not None
            return [msgspec.structs.replace(found, min_member=least, rv=rv)]


@settings(max_examples=60)
@given(lives(every_policy), st.integers(1, 8))
def test_what_is_said_to_fit_is_placed(events: list[Event], placed: int) -> None:
    state = ClusterState()
    for seq, event in enumerate(events, 1):
        apply(state, event, seq)
    batch = tuple(state.pending)[:placed]
    made = run_cycle(state, batch, Evaluator(state))
    decided = build.decided(*made.placements, basis=state.seq, batch=batch)
    apply(state, decided, state.seq + 1)
    for uid in state.pending:
        fact = state.pods[uid].fact
        if fact.problem is not None:
            continue
        ruled = verdict(state, fact)
        asked = situated(ruled.tries[-1], state)
        answers = codes(state, asked)
        check_counts(state, uid, answers)
        if FITS in answers:
            continue
        for each in advice.pod_advice(state, fact, ruled):
            check_line(each.found)
            then = carried_out(state, [uid], each.found.deed)
            outcome = Rounds(then).run([uid], Board(then))
            assert [p.uid for p in outcome.placements] == [uid], each.found.text
            assert outcome.placements[0].feasible == each.found.nodes_fit, each.found.text
        if not fits_empty_cluster(state, asked):
            check_empty(state, uid)


def check_line(found: Found) -> None:
    """Of what the pod would have to say otherwise there is a line to paste, if it is only one."""
    if isinstance(found.deed, Asks) and found.change.path != "/request/devices":
        assert line_text(found.change), found.text


def check_counts(state: ClusterState, uid: str, answers: list[str]) -> None:
    """The funnel counts what `fits` answers, and every node once."""
    request = situated(state.pods[uid].fact, state)
    nodes = present(state)
    around = look_around(nodes, request)
    given = Counter(fits(node, request, state.policy, around=around) for node in nodes)
    counted = Counter({code: n for step in funnel(answers) for code, n in step.reasons.items()})
    assert counted == {code: n for code, n in given.items() if isinstance(code, str)}


def check_empty(state: ClusterState, uid: str) -> None:
    """What is said to fit an empty cluster fits one of its nodes when it is empty."""
    request = situated(state.pods[uid].fact, state)
    for each in advice.empty_advice(state, request):
        assert isinstance(each.found.deed, Asks), each.found.text
        check_line(each.found)
        changed = each.found.deed.edit(request)
        assert fits_empty_cluster(state, changed), each.found.text


@settings(max_examples=20)
@given(STEPS)
def test_where_queues_and_groups_have_a_say(steps: list[Op]) -> None:
    world = World()
    for number in range(3):
        world.node(number, 2 + number, number)
        world.group(number, 2 + number, 0)
        world.pods(number, 3, 3)
    for op, a, b, c in steps:
        OPS[op](world, a, b, c)
    state = world.state
    for uid in list(state.pending)[:6]:
        fact = state.pods[uid].fact
        if fact.problem is not None or state.is_gang(fact.group):
            continue
        ruled = verdict(state, fact)
        if ruled.no is None and FITS in codes(state, situated(ruled.tries[-1], state)):
            continue
        for each in advice.pod_advice(state, fact, ruled):
            then = carried_out(state, [uid], each.found.deed)
            outcome = Rounds(then).run([uid], Board(then))
            # a pod of its own group may come first, and take what was made free
            alike = {uid, *(state.groups[fact.group].members if fact.group else ())}
            assert alike.intersection(p.uid for p in outcome.placements), each.found.text
    for key in state.groups:
        if state.is_gang(key):
            check_group(state, key)


SIZES = st.sampled_from([3_000, 4_000, 6_000, 12_000, 16_000])


@settings(max_examples=100)
@given(
    cards=st.integers(1, 2),
    holders=st.lists(SIZES, max_size=4),
    members=st.lists(SIZES, min_size=2, max_size=5),
    least=st.integers(2, 5),
)
def test_what_is_said_to_start_a_gang_of_unequal_members_starts_it(
    cards: int, holders: list[int], members: list[int], least: int
) -> None:
    world = rounds_world.World(build.node("n1", cards))
    for number, amount in enumerate(holders):
        name = f"h{number}"
        world.tell(build.pod(name, build.request(build.wants(amount, 0)), name=name))
    world.decide()
    world.tell(rounds_world.group("a", min(least, len(members))))
    for number, amount in enumerate(members):
        wanted, name = build.request(build.wants(amount, 0)), f"m{number}"
        world.tell(build.pod(name, wanted, name=name, group="default/a"))
    check_group(world.state, "default/a")


def check_group(state: ClusterState, key: str) -> None:
    ruled = group_verdict(state, key)
    if not isinstance(ruled, GroupVerdict):
        return
    uids = [uid for uid in state.groups[key].members if uid in state.pending]
    for each in advice.gang_advice(state, key, ruled):
        assert each.members is not None
        assert each.members_fit is not None
        if each.members_fit >= each.members:
            then = carried_out(state, uids, each.found.deed)
            outcome = Rounds(then).run(uids, Board(then))
            assert len(outcome.placements) >= each.members, each.found.text


PREEMPTING = Policy(
    actions=("enqueue", "allocate", "preempt", "backfill"),
    tiers=((PluginUse("priority"),), (PluginUse("gang"), PluginUse("proportion"))),
)


@settings(max_examples=60)
@given(
    cards=st.integers(1, 3),
    holders=st.lists(st.tuples(SIZES, st.integers(0, 3)), max_size=6),
    wanted=st.tuples(SIZES, st.integers(0, 3)),
    members=st.integers(1, 3),
)
def test_who_outranks_others_fits_when_those_are_gone_that_a_round_evicts(
    cards: int, holders: list[tuple[int, int]], wanted: tuple[int, int], members: int
) -> None:
    world = rounds_world.World(build.node("n1", cards), build.node("n2", 1), policy=PREEMPTING)
    for value in range(4):
        world.tell(PriorityClassObserved(uid=f"c{value}", name=f"p{value}", rv=1, value=value))
    for number, (amount, value) in enumerate(holders):
        ranked_pod(world, f"h{number}", amount, value)
    world.decide()
    world.bind()
    amount, value = wanted
    if members == 1:
        uids = [ranked_pod(world, "m0", amount, value)]
    else:
        world.tell(rounds_world.group("a", members, priority_class=f"p{value}"))
        uids = [ranked_pod(world, f"m{n}", amount, value, "default/a") for n in range(members)]
    if len(world.round(uids).placements) == members:
        return
    state = world.state
    for each in offered(state, uids):
        if isinstance(each.found.deed, Ranked):
            hypothesis.event("preemption is offered")
            then = carried_out(state, uids, each.found.deed)
            made = Rounds(then).run(uids, Board(then))
            assert made.evictions, each.found.text
            gone = {one.uid for one in made.evictions}
            assert each.found.deed.value > max(state.pods[uid].fact.priority for uid in gone)
            after = carried_out(then, uids, Ended(tuple(gone)))
            outcome = Rounds(after).run(uids, Board(after))
            assert len(outcome.placements) == members, each.found.text


def ranked_pod(
    world: rounds_world.World, name: str, amount: int, value: int, group: str = ""
) -> str:
    world.tell(
        build.pod(
            name,
            build.request(build.wants(amount, 0)),
            name=name,
            group=group,
            queue="" if group else "default",
            priority=value,
            priority_class=f"p{value}",
            preemptable=True,
        )
    )
    return name


def offered(state: ClusterState, uids: list[str]) -> list[advice.Advice]:
    """What is offered to a group, or to a pod by itself."""
    fact = state.pods[uids[0]].fact
    if not fact.group:
        return advice.pod_advice(state, fact, verdict(state, fact))
    ruled = group_verdict(state, fact.group)
    assert isinstance(ruled, GroupVerdict)
    return advice.gang_advice(state, fact.group, ruled)


@settings(max_examples=20)
@given(lives(every_policy))
def test_the_work_is_bounded_and_the_best_comes_first(events: list[Event]) -> None:
    state = ClusterState()
    for seq, event in enumerate(events, 1):
        apply(state, event, seq)
    nodes = present(state)
    for uid in state.pending:
        request = situated(state.pods[uid].fact, state)
        bench = Bench(state, nodes)
        found = found_on(bench, request)
        assert found == sorted(found, key=rank)
        assert bench.asked <= asked_most(len(nodes))
