"""Fake kubelets admit one pod after the other, and are as nasty about it as the real ones."""

from typing import Any

import pytest
from tests.contract.local_nodes import World, ask

from allotment_local.apiserver.binding import bind
from allotment_local.apiserver.resources import NODES, PODS
from allotment_local.nodes.annotations import ALLOCATE_TIME, START_DELAY
from allotment_proto.volcano import keys

FORBIDDEN = {"securityContext": {"sysctls": [{"name": "kernel.msgmax", "value": "1"}]}}
MANY = "- {name: v, gpus: {model: T4, count: 8, memory_mib: 16000, slots: 2}, cpu: 8, memory: 32Gi}"


@pytest.fixture
def world() -> World:
    return World(MANY)


def allocate_takes(world: World, time: str) -> None:
    patch = {"metadata": {"annotations": {ALLOCATE_TIME: time}}}
    world.store.merge_patch(NODES, "", "v", patch)


def bound(world: World, *names: str, **annotations: str) -> None:
    """Pods on cards 0, 1, 2 …, bound in this order."""
    for index, name in enumerate(names):
        world.pod(name, ask(), annotations)
        world.bind_vgpu(name, (index, 4000, 25))


def served(world: World) -> list[str]:
    """Pods whose record was served, in the order of their names."""
    pods: list[dict[str, Any]] = world.store.list(PODS)[0]
    return sorted(
        pod["metadata"]["name"]
        for pod in pods
        if pod["metadata"]["annotations"].get(keys.BIND_PHASE) == keys.PHASE_SUCCESS
    )


def cards_of(world: World) -> dict[str, list[int]]:
    """Pod → the indexes of the cards that its containers really got."""
    out: dict[str, list[int]] = {}
    for card in world.fake.report()["cards"]:
        for holder in card["holders"]:
            out.setdefault(holder["pod"].partition("/")[2], []).append(card["index"])
    return out


def test_one_pod_after_the_other_is_served_and_starts_overlap(world: World) -> None:
    allocate_takes(world, "1s")
    bound(world, "a", "b", "c", **{START_DELAY: "5s"})
    for passed_s, done in ((0.5, []), (1, ["a"]), (1, ["a", "b"]), (1, ["a", "b", "c"])):
        world.pass_time(passed_s)
        assert served(world) == done
    assert {world.phase(name) for name in "abc"} == {"Pending"}
    world.pass_time(4.7)
    assert {world.phase(name) for name in "abc"} == {"Running"}, "they started side by side"
    assert cards_of(world) == {"a": [0], "b": [1], "c": [2]}
    assert world.incidents() == []


WHOLE = "nvidia.com/gpu"


@pytest.mark.parametrize(
    ("init", "main", "phase", "cards"),
    [
        ([(8, "")], [8], "Running", {"main-0": 8}),
        ([(8, ""), (4, "")], [4, 4], "Running", {"main-0": 4, "main-1": 4}),
        ([(2, "Always")], [6], "Running", {"init-0": 2, "main-0": 6}),
        ([(2, "Always")], [8], "Failed", {}),
        ([(6, ""), (2, "Always")], [6], "Running", {"init-1": 2, "main-0": 6}),
    ],
)
def test_cards_of_init_containers_are_handed_on_and_sidecars_keep_theirs(
    init: list[tuple[int, str]], main: list[int], phase: str, cards: dict[str, int]
) -> None:
    node = "- {name: w, kind: whole, gpus: {model: H100, count: 8, memory_mib: 80000}}"
    world = World(node)

    def container(name: str, number: int, restart: str = "") -> dict[str, Any]:
        made: dict[str, Any] = {"name": name, "image": "i:1"}
        made["resources"] = {"limits": {WHOLE: number}, "requests": {WHOLE: number}}
        return made | ({"restartPolicy": restart} if restart else {})

    spec = {
        "initContainers": [container(f"init-{at}", *each) for at, each in enumerate(init)],
        "containers": [container(f"main-{at}", each) for at, each in enumerate(main)],
    }
    world.store.create(PODS, "default", {"metadata": {"name": "warm"}, "spec": spec})
    bind(world.store, "default", "warm", {"target": {"kind": "Node", "name": "w"}})
    world.pass_time()
    assert world.phase("warm") == phase
    held: dict[str, int] = {}
    for card in world.fake.report()["cards"]:
        for holder in card["holders"]:
            held[holder["container"]] = held.get(holder["container"], 0) + 1
    assert held == cards
    assert [each for each in world.incidents() if "Oversold" in str(each)] == []


def test_two_gpu_containers_are_two_calls(world: World) -> None:
    allocate_takes(world, "1s")
    containers = [
        {"name": name, "image": "i:1", "resources": {"limits": {keys.GPU_NUMBER: 1}}}
        for name in ("x", "y")
    ]
    made = {"metadata": {"name": "two"}, "spec": {"containers": containers}}
    two = World("- {name: s, kind: gpushare, gpus: {model: T4, count: 2, memory_mib: 16000}}")
    two.store.merge_patch(NODES, "", "s", {"metadata": {"annotations": {ALLOCATE_TIME: "1s"}}})
    two.store.create(PODS, "default", made)
    two.bind_share("two", 0)
    two.pass_time(1.5)
    assert two.annotation("two", keys.GPU_ASSIGNED) == "true"
    assert two.get("two")["status"]["phase"] == "Pending", "the second container is not served yet"
    two.pass_time(1)
    assert two.get("two")["status"]["phase"] != "Pending"


def test_a_pod_refused_before_its_allocate_leaves_its_record_to_the_next_and_so_on(
    world: World,
) -> None:
    world.store.create(
        PODS,
        "default",
        {
            "metadata": {"name": "dead"},
            "spec": {
                **FORBIDDEN,
                "containers": [{"name": "main", "image": "i:1", "resources": {"limits": ask()}}],
            },
        },
    )
    world.bind_vgpu("dead", (7, 4000, 25))
    world.pass_time()
    status = world.get("dead")["status"]
    assert (status["phase"], status["reason"]) == ("Failed", "SysctlForbidden")
    assert world.annotation("dead", keys.BIND_PHASE) == keys.PHASE_ALLOCATING
    for index, name in enumerate("abc"):
        world.pod(name, ask())
        world.bind_vgpu(name, (index, 4000, 25))
        world.pass_time()
    assert cards_of(world) == {"a": [7], "b": [0], "c": [1]}
    assert world.incidents() == ["Misdelivered"] * 3
    whose = [incident.message.partition(": ")[0] for incident in world.fake.books.incidents]
    assert whose == [
        f"container main was served with the record of default/{name}"
        for name in ("dead", "a", "b")
    ]
    assert world.phase("c") == "Running"
    assert world.annotation("c", keys.BIND_PHASE) == keys.PHASE_ALLOCATING, "it serves the next"


def test_a_pod_deleted_by_force_in_the_line_is_admitted_all_the_same(world: World) -> None:
    allocate_takes(world, "1s")
    bound(world, "a")
    world.pod("deleted", ask())
    world.bind_vgpu("deleted", (6, 4000, 25))
    world.pass_time(0.5)
    world.store.delete(PODS, "default", "deleted", grace_seconds=0)
    bound(world, "b")
    world.pass_time(3)
    assert cards_of(world) == {"a": [0]}, "the deleted pod took the record of b, and gave it back"
    assert world.incidents() == ["Misdelivered"]
    assert "cannot get valid pod" in world.get("b")["status"]["message"]


def test_a_pod_deleted_with_grace_in_the_line_takes_its_own_record(world: World) -> None:
    allocate_takes(world, "1s")
    bound(world, "a", "deleted", "b")
    world.pass_time(0.5)
    world.store.delete(PODS, "default", "deleted")
    world.pass_time(1)
    assert world.store.find(PODS, "default", "deleted") is not None, "its turn comes first"
    world.pass_time(3)
    assert world.store.find(PODS, "default", "deleted") is None
    assert cards_of(world) == {"a": [0], "b": [2]}
    assert world.incidents() == []


def test_a_plugin_restart_fails_whoever_reaches_admission_meanwhile(world: World) -> None:
    allocate_takes(world, "1s")
    bound(world, "under-way", "waits", "later")
    world.pass_time(0.5)
    world.annotate_node("v", "plugin-restarts")
    assert world.allocatable("v", keys.VGPU_NUMBER) == "16", "too short for the node to show it"
    world.pass_time(1)
    world.annotate_node("v", None)
    for name, why in (("under-way", "Unavailable"), ("waits", "no healthy devices present")):
        status = world.get(name)["status"]
        assert (status["phase"], status["reason"]) == ("Failed", "UnexpectedAdmissionError")
        assert why in status["message"]
        assert world.annotation(name, keys.BIND_PHASE) == keys.PHASE_ALLOCATING


def test_pods_listed_afresh_are_admitted_by_second_of_creation_in_any_order() -> None:
    orders = {relisted(seed) for seed in range(4)}
    assert len(orders) > 1, "ties are broken at random"


def relisted(seed: int) -> tuple[str, ...]:
    """The order in which eight pods are served, two of each second, the last name first."""
    world, names = World(MANY, seed=seed), "hgfedcba"
    world.annotate_node("v", "watch-lost")
    for index, name in enumerate(names):
        world.now_s += 0.5
        world.pod(name, ask())
        world.bind_vgpu(name, (index, 4000, 25))
    world.pass_time(30)
    assert served(world) == []
    allocate_takes(world, "1s")
    world.annotate_node("v", None)
    order: list[str] = []
    for _ in names:
        world.pass_time(1.05)
        order += [name for name in cards_of(world) if name not in order]
    created = {name: world.get(name)["metadata"]["creationTimestamp"] for name in names}
    assert [created[name] for name in order] == sorted(created.values())
    return tuple(order)


def test_who_was_admitted_is_not_admitted_again_after_a_relist(world: World) -> None:
    bound(world, "a", **{START_DELAY: "20s"})
    world.pass_time(1)
    world.annotate_node("v", "watch-lost")
    bound(world, "b")
    world.annotate_node("v", None)
    world.pass_time(25)
    assert world.incidents() == []
    assert {world.phase(name) for name in "ab"} == {"Running"}


def test_a_node_that_comes_back_admits_who_waits_there(world: World) -> None:
    allocate_takes(world, "1s")
    bound(world, "a", "b")
    node = world.node("v")
    world.pass_time(0.5)
    world.annotate_node("v", "node-gone")
    world.pass_time(2)
    assert served(world) == []
    metadata = {"name": "v", "annotations": node["metadata"]["annotations"]}
    world.store.create(NODES, "", {"metadata": metadata, "status": node["status"]})
    world.pass_time(10)
    assert sorted(cards_of(world)) == ["a", "b"], "in whatever order"
    assert {world.phase(name) for name in "ab"} == {"Running"}
