"""Plugin task-topology: which pods of a job go together, in which order, and to which node."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allotment.core.placement.evaluator import Evaluator, Ranker
from allotment.core.placement.rules.bounds import Bonus, bonus_micro
from allotment.core.queues.model import JobView, Status, Task
from allotment.core.queues.plugins.task_topology import (
    AFFINITY,
    ANTI_AFFINITY,
    TASK_ORDER,
    Buckets,
    TopologyError,
    read_topology,
    without_effect,
)
from allotment.core.queues.resources import Resources
from allotment.core.queues.round.verdict import verdict
from allotment.core.queues.work import Job
from allotment_board.board import Board
from allotment_proto.events import Decided
from allotment_proto.facts import PluginUse, Policy, TaskTopology
from tests import build
from tests.unit.rounds_world import World, group

PS_AND_WORKERS = TaskTopology((("ps", "worker"),), (("ps",),), ())
SIX = ("j-ps-0", "j-ps-1", *(f"j-worker-{n}" for n in range(4)))
POINT = 1_000_000


def policy(weight: int = 10, off: tuple[str, ...] = ()) -> Policy:
    use = PluginUse("task-topology", arguments=(("task-topology.weight", weight),), off=off)
    tiers = ((PluginUse("priority"), PluginUse("gang")), (PluginUse("predicates"), use))
    return Policy(tiers=tiers, device_weight=0, fit_weight=0, host_weight=0)


def task(name: str, cpu: int = 1_000, node: str = "", **changes: Any) -> Task:
    role = name.split("-")[1]
    status = Status.RUNNING if node else Status.PENDING
    values = {"role": role, "request": Resources({"cpu": cpu}), "node": node, "status": status}
    return Task(uid=name, name=name, **{**values, **changes})


def buckets(topology: TaskTopology, *tasks: Task) -> Buckets:
    return Buckets(topology, Job(JobView(uid="j", tasks=tasks, topology=topology)))


def shown(found: Buckets) -> list[list[str]]:
    return [[task.name for task in bucket.waiting] for bucket in found.all]


def in_order(found: Buckets, *tasks: Task) -> list[str]:
    ordered = sorted(tasks, key=lambda t: (found.keys.get(t.uid, (1,)), t.place_in_order))
    return [task.name for task in ordered]


class TestAnnotations:
    def test_groups_are_separated_by_semicolons_and_names_by_commas(self) -> None:
        found = read_topology(
            {
                AFFINITY: "ps,worker;ps,evaluator",
                ANTI_AFFINITY: "ps;worker,chief;chief,evaluator",
                TASK_ORDER: "ps,worker,chief,evaluator",
            }
        )
        assert found == TaskTopology(
            (("ps", "worker"), ("ps", "evaluator")),
            (("ps",), ("worker", "chief"), ("chief", "evaluator")),
            ("ps", "worker", "chief", "evaluator"),
        )

    def test_nothing_is_said_without_them(self) -> None:
        assert read_topology({"volcano.sh/task-topology": "ps"}) is None
        assert read_topology({AFFINITY: ""}) == TaskTopology()
        assert read_topology({AFFINITY: "ps,worker;"}) == TaskTopology((("ps", "worker"),))

    @pytest.mark.parametrize(
        ("key", "text", "says"),
        [
            (AFFINITY, "ps, worker", "has blanks around 'worker'"),
            (ANTI_AFFINITY, "ps;worker,worker", "names 'worker' twice in 'worker,worker'"),
            (TASK_ORDER, "ps,ps", "names 'ps' twice in 'ps,ps'"),
            (AFFINITY, "a" * 64, f"has '{'a' * 63}'…, longer than a name"),
            (TASK_ORDER, ",".join(map(str, range(257))), "has more than 256 names"),
            (AFFINITY, ";".join(["a"] * 257), "has more than 256 names"),
        ],
    )
    def test_a_bad_value_is_refused_by_name(self, key: str, text: str, says: str) -> None:
        with pytest.raises(TopologyError) as caught:
            read_topology({key: text})
        assert caught.value.key == key
        assert str(caught.value).startswith(says)
        assert without_effect({key: text}).startswith(f"annotation {key} {says}")

    def test_tasks_that_the_job_has_not_are_named(self) -> None:
        said = without_effect({AFFINITY: "ps,wroker"}, ["worker", "ps"])
        assert said == (
            f"annotation {AFFINITY} names the task 'wroker', which is none of the group's:"
            " ps, worker; until that is mended the annotations volcano.sh/task-topology-* have no"
            " effect"
        )
        assert without_effect({AFFINITY: "ps,worker"}, ["worker", "ps"]) == ""
        assert without_effect({AFFINITY: "ps,wroker"}) == "" == without_effect({}, ["ps"])


class TestBuckets:
    def test_parameter_servers_apart_each_with_its_workers(self) -> None:
        """Each ps opens a bucket, as it avoids the other; then workers join the bucket that asks
        for less, by turns."""
        tasks = [task(name) for name in SIX[::-1]]
        found = buckets(PS_AND_WORKERS, *tasks)
        assert shown(found) == [
            ["j-ps-0", "j-worker-0", "j-worker-2"],
            ["j-ps-1", "j-worker-1", "j-worker-3"],
        ]
        assert found.most == 3
        assert in_order(found, *tasks) == [name for names in shown(found) for name in names]

    def test_a_pod_joins_the_bucket_that_asks_for_less(self) -> None:
        """ps-0 asks for 3 CPUs: both workers of 1 CPU join ps-1, which asks for 1."""
        tasks = [task("j-ps-0", 3_000), task("j-ps-1"), task("j-worker-0"), task("j-worker-1")]
        assert shown(buckets(PS_AND_WORKERS, *tasks)) == [
            ["j-ps-0"],
            ["j-ps-1", "j-worker-0", "j-worker-1"],
        ]

    def test_a_gib_of_memory_a_gpu_and_a_cpu_count_alike(self) -> None:
        gib = Resources({"memory": 1_024 << 20, "pods": 1})
        gpu = Resources({"nvidia.com/gpu": 1_000, "cpu": 23, "pods": 1})
        tasks = [task("j-ps-0", request=gpu), task("j-ps-1", request=gib), task("j-worker-0", 1)]
        assert shown(buckets(PS_AND_WORKERS, *tasks))[0] == ["j-ps-0", "j-worker-0"]
        more = Resources({"nvidia.com/gpu": 1_000, "cpu": 25})
        tasks[0] = task("j-ps-0", request=more)
        assert shown(buckets(PS_AND_WORKERS, *tasks))[1] == ["j-ps-1", "j-worker-0"]

    def test_the_order_decides_first_and_then_what_opens_most_buckets(self) -> None:
        """Affinity to itself 2, between tasks 3, anti-affinity to itself 4, between tasks 1."""
        topology = TaskTopology((("b", "c"), ("d",)), (("a",), ("e", "a")))
        tasks = [task(f"j-{role}-0") for role in "edcba"]
        assert [t.role for b in buckets(topology, *tasks).all for t in b.waiting] == [*"abcd", "e"]
        ordered = TaskTopology(topology.affinity, topology.anti_affinity, ("d", "e"))
        (first, second) = buckets(ordered, *tasks).all
        assert [t.role for t in first.waiting] == ["d", "e"]
        # a avoids e; to b both are alike, and this one asks for less; c belongs to b
        assert [t.role for t in second.waiting] == ["a", "b", "c"]

    def test_without_affinity_pods_share_the_bucket_that_they_need_not_avoid(self) -> None:
        topology = TaskTopology((), (("ps",),))
        tasks = [task("j-ps-0"), task("j-ps-1"), task("j-other-0")]
        found = buckets(topology, *tasks)
        assert shown(found) == [["j-ps-0"], ["j-ps-1"]]
        assert "j-other-0" not in found.of
        assert in_order(found, *tasks) == ["j-ps-0", "j-ps-1", "j-other-0"]

    def test_what_has_a_node_is_the_bucket_of_that_node(self) -> None:
        """A third ps avoids both. Workers belong to each of the three alike: the first goes where
        nothing waits, to n1, the second where still nothing does."""
        tasks = [
            task("j-ps-0", node="n1"),
            task("j-ps-1", node="n2"),
            task("j-worker-0", 5_000),
            task("j-worker-1"),
            task("j-ps-2"),
        ]
        found = buckets(PS_AND_WORKERS, *tasks)
        assert [dict(bucket.nodes) for bucket in found.all] == [{"n1": 1}, {"n2": 1}, {}]
        assert shown(found) == [["j-worker-0"], ["j-worker-1"], ["j-ps-2"]]

    def test_what_ended_is_nobodys_neighbour(self) -> None:
        tasks = [task("j-ps-0", node="n1", status=Status.SUCCEEDED), task("j-ps-1")]
        found = buckets(PS_AND_WORKERS, *tasks, task("j-worker-0"))
        assert found.on_node == {}
        assert shown(found) == [["j-ps-1", "j-worker-0"]]

    def test_an_unknown_task_takes_the_effect_of_all(self) -> None:
        found = buckets(TaskTopology((("ps", "wroker"),)), task("j-ps-0"), task("j-worker-0"))
        assert found.all == []
        assert found.keys == {}

    def test_many_that_avoid_each_other_are_sorted_out_quickly(self) -> None:
        found = buckets(TaskTopology((), (("w",),)), *[task(f"j-w-{n}") for n in range(5_000)])
        assert len(found.all) == 5_000
        assert found.most == 1


def dumb(topology: TaskTopology, tasks: list[Task], model: Buckets) -> list[list[str]]:
    """Buckets by looking at each of them for each pod, as the rule is told."""
    near = {(a, b) for g in topology.affinity for a in g for b in g if a != b or len(g) == 1}
    anti = {(a, b) for g in topology.anti_affinity for a in g for b in g if a != b or len(g) == 1}
    bound = sorted((t for t in tasks if t.node), key=lambda t: (t.node, t.uid))
    found = [[t for t in bound if t.node == node] for node in dict.fromkeys(b.node for b in bound)]
    rank = {t.uid: model.keys[t.uid][3:] for t in tasks}
    for one in sorted((t for t in tasks if not t.node), key=lambda t: (rank[t.uid], t.name)):
        scored = [
            (
                -sum(((one.role, t.role) in near) - ((one.role, t.role) in anti) for t in bucket),
                sum(int(t.request.amount("cpu")) for t in bucket if not t.node),
                index,
            )
            for index, bucket in enumerate(found)
        ]
        best = min(scored, default=(1, 0, 0))
        found[best[2]].append(one) if best[0] <= 0 else found.append([one])
    return [[t.uid for t in bucket] for bucket in found]


NAMES = st.lists(st.sampled_from("abc"), min_size=1, max_size=3, unique=True).map(tuple)
TOPOLOGIES = st.builds(
    lambda near, anti, order: TaskTopology(((*near, ("a",))), anti, order),
    st.lists(NAMES, max_size=2).map(tuple),
    st.lists(NAMES, max_size=3).map(tuple),
    NAMES | st.just(()),
)


@given(
    TOPOLOGIES,
    st.lists(
        st.tuples(st.sampled_from("abc"), st.integers(1, 3), st.sampled_from(("", "", "n1", "n2"))),
        max_size=12,
    ),
)
def test_buckets_are_those_of_the_rule(
    topology: TaskTopology, drawn: list[tuple[str, int, str]]
) -> None:
    tasks = [task(f"j-{role}-{n}", cpu, node) for n, (role, cpu, node) in enumerate(drawn)]
    named = {name for g in (*topology.affinity, *topology.anti_affinity) for name in g}
    if not {*named, *topology.order} <= {t.role for t in tasks}:
        assert buckets(topology, *tasks).all == []
        return
    found = buckets(topology, *tasks)
    tasks = [t for t in tasks if t.role in named]
    made: dict[int, set[str]] = {}
    for uid, bucket in found.of.items():
        made.setdefault(bucket.index, set()).add(uid)
    assert [made[n] for n in sorted(made)] == [set(uids) for uids in dumb(topology, tasks, found)]


def world_of(topology: TaskTopology | None, *cpus: int, used: Policy | None = None) -> World:
    nodes = [build.node(f"n{n}", 0, cpu_milli=cpu * 1_000) for n, cpu in enumerate(cpus, 1)]
    world = World(*nodes, policy=used or policy())
    world.tell(group("j", 1, task_topology=topology))
    return world


def tell(world: World, *names: str, **changes: Any) -> None:
    for name in names:
        request = build.request(cpu_milli=1_000, memory_bytes=1)
        values = {"name": name, "group": "default/j", "role": name.split("-")[1], **changes}
        world.tell(build.pod(name, request, **values))


def nodes_of(decided: Decided) -> dict[str, str]:
    return {placement.uid: placement.node for placement in decided.placements}


def terms_of(decided: Decided) -> dict[str, int | None]:
    return {p.uid: dict(p.terms).get("task-topology") for p in decided.placements}


def due(world: World) -> list[str]:
    """The pods in the order in which they are tried."""
    session = world.rounds.session()
    return [task.name for task in session.due_tasks(session.jobs["default/j"])]


class TestPlaces:
    def test_each_server_gets_its_workers_as_far_as_there_is_room(self) -> None:
        """Nodes of 2, 1 and 4 CPUs. n3 takes the whole first bucket. Its fourth CPU is nothing for
        ps-1: it avoids ps-0 there (1 − 1 = 0 against 2 on n1). worker-1 follows it (1 + 1, it has
        no room for worker-3 then); n3 has no pod of its bucket (1), n2 neither."""
        world = world_of(PS_AND_WORKERS, 2, 1, 4)
        tell(world, *SIX)
        decided = world.decide()
        found = nodes_of(decided)
        assert {found[uid] for uid in ("j-ps-0", "j-worker-0", "j-worker-2")} == {"n3"}
        assert {found[uid] for uid in ("j-ps-1", "j-worker-1")} == {"n1"}
        assert found["j-worker-3"] in ("n2", "n3")
        # the largest bucket has three: a pod is 10 × 100 / 3 points
        third = 1_000 * POINT // 3
        terms = terms_of(decided)
        assert terms["j-ps-0"] == terms["j-worker-0"] == terms["j-worker-2"] == 1_000 * POINT
        assert terms["j-ps-1"] == 2 * third
        assert terms["j-worker-1"] == 2 * third
        assert terms["j-worker-3"] == third

    def test_without_the_annotation_nothing_is_weighed(self) -> None:
        world = world_of(None, 2, 1, 4)
        tell(world, *SIX)
        decided = world.decide()
        assert set(terms_of(decided).values()) == {None}
        assert set(nodes_of(decided).values()) == {"n1", "n2", "n3"}
        assert nodes_of(decided)["j-ps-0"] == "n1"

    @pytest.mark.parametrize(
        ("used", "term"), [(policy(0), None), (policy(off=("enableNodeOrder",)), None)]
    )
    def test_without_weight_or_switched_off_nodes_are_not_weighed(
        self, used: Policy, term: int | None
    ) -> None:
        world = world_of(PS_AND_WORKERS, 2, 1, 4, used=used)
        tell(world, *SIX)
        decided = world.decide()
        assert set(terms_of(decided).values()) == {term}
        assert nodes_of(decided)["j-ps-0"] == "n1"

    def test_task_order_switched_off_leaves_the_index_of_names(self) -> None:
        world = world_of(PS_AND_WORKERS, 8, used=policy(off=("enableTaskOrder",)))
        tell(world, *SIX)
        assert due(world) == ["j-ps-0", "j-worker-0", "j-ps-1", "j-worker-1", *SIX[4:]]

    def test_buckets_come_one_after_the_other(self) -> None:
        world = world_of(PS_AND_WORKERS, 8)
        tell(world, *SIX)
        assert due(world) == [SIX[0], SIX[2], SIX[4], SIX[1], SIX[3], SIX[5]]

    def test_servers_are_spread_though_all_would_fit_on_one_node(self) -> None:
        world = world_of(TaskTopology((), (("ps",),)), 8, 8, 8)
        tell(world, "j-ps-0", "j-ps-1", "j-ps-2")
        assert sorted(nodes_of(world.decide()).values()) == ["n1", "n2", "n3"]

    def test_what_was_placed_before_counts(self) -> None:
        """Another ps comes later and avoids the one on n2; a worker goes to a ps that has none."""
        world = world_of(PS_AND_WORKERS, 8, 8)
        tell(world, "j-ps-0", "j-worker-0", node="n2", phase="Running")
        tell(world, "j-worker-1")
        assert nodes_of(world.decide()) == {"j-worker-1": "n2"}
        alone = world_of(PS_AND_WORKERS, 8, 8)
        tell(alone, "j-ps-0", node="n1", phase="Running")
        tell(alone, "j-ps-1", "j-worker-0", "j-worker-1")
        found = nodes_of(alone.decide())
        # ps-1 asks for a CPU, so the first worker goes to the bucket of n1, where nothing waits
        assert found == {"j-ps-1": "n2", "j-worker-0": "n1", "j-worker-1": "n1"}

    def test_room_of_pods_that_end_counts(self) -> None:
        """n1 has 2 of 4 CPUs free, and one more when a pod is gone; n2 has 2. Three go together."""
        world = world_of(PS_AND_WORKERS, 4, 2)
        request = build.request(cpu_milli=1_000, memory_bytes=1)
        world.tell(build.pod("stays", request, node="n1", phase="Running"))
        world.tell(build.pod("goes", request, node="n1", phase="Running", deleting=True))
        tell(world, "j-ps-0", "j-worker-0", "j-worker-1")
        decided = world.decide()
        assert nodes_of(decided) == {"j-ps-0": "n1", "j-worker-0": "n1", "j-worker-1": "n2"}
        assert terms_of(decided)["j-ps-0"] == 1_000 * POINT

    def test_a_gang_that_gets_nothing_leaves_nothing_behind(self) -> None:
        """What was assumed and given back does not count for who comes next."""
        world = world_of(PS_AND_WORKERS, 2, 2)
        world.tell(group("j", 5, rv=2, task_topology=PS_AND_WORKERS))
        tell(world, *SIX)
        assert world.decide().placements == ()
        world.tell(build.node("n3", 0, cpu_milli=4_000))
        found = nodes_of(world.decide())
        assert found["j-ps-0"] == "n3" != found["j-ps-1"]

    def test_an_unknown_task_has_no_effect_on_the_rest(self) -> None:
        world = world_of(TaskTopology((("ps", "wroker"),), (("ps",),)), 8, 8)
        tell(world, "j-ps-0", "j-ps-1")
        decided = world.decide()
        assert set(nodes_of(decided).values()) == {"n1"}
        assert set(terms_of(decided).values()) == {None}

    def test_the_score_table_has_the_term(self) -> None:
        world = world_of(PS_AND_WORKERS, 2, 4)
        tell(world, "j-ps-0", "j-worker-0", "j-worker-1")
        (asked,) = verdict(world.state, world.state.pods["j-ps-0"].fact).tries
        rankers: tuple[Ranker, ...] = (Board(world.state), Evaluator(world.state))
        for ranker in rankers:
            ranker.begin()
            best = ranker.rank(asked.request).best
            assert best is not None
            assert best.rank[-1] == "n2"
            assert dict(best.score.terms)["task-topology"] == 1_000 * POINT
            ranker.end()


def test_a_nodes_name_is_no_label() -> None:
    bonus = Bonus("task-topology", (), (("n1", 7),), 1)
    assert bonus_micro(bonus, {"n1": "n2", "": "n1"}, "n2") == 1
    assert bonus_micro(bonus, {}, "n1") == 7


@given(TOPOLOGIES, st.lists(st.sampled_from("abc"), min_size=3, max_size=8), st.data())
def test_the_board_and_the_plain_loops_agree(
    topology: TaskTopology, roles: list[str], data: st.DataObject
) -> None:
    """`World.round` plays each round on both roads."""
    cpus = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=3))
    world = world_of(topology, *cpus, used=policy(data.draw(st.integers(1, 3))))
    tell(world, *(f"j-{role}-{n}" for n, role in enumerate(roles)))
    for _ in range(2):
        world.decide()
        tell(world, f"j-{data.draw(st.sampled_from('abc'))}-9{len(world.state.pods)}")
