"""Fake nodes behave as the real device plugins and kubelet do, and say when a card is oversold.

Time stands still but for `world.pass_time`: timers run on a clock of the test's own.
"""

import itertools
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from allotment_local.apiserver.binding import bind
from allotment_local.apiserver.resources import EVENTS, LEASES, NODES, PODS
from allotment_local.apiserver.store import Store
from allotment_local.nodes.annotations import FAULT, RUN_DURATION, START_DELAY
from allotment_local.nodes.fake import FakeNodes
from allotment_local.nodes.objects import card_id, node_objects
from allotment_local.nodes.shape_reader import parse_shapes
from allotment_local.nodes.timers import Timers
from allotment_proto.facts import Holding
from allotment_proto.volcano import gpushare, keys, vgpu

Json = dict[str, Any]
START = datetime(2026, 1, 1, tzinfo=UTC)
NODES_YAML = """
- {name: v, gpus: {model: Tesla T4, count: 2, memory_mib: 16000, slots: 2}, cpu: 8, memory: 32Gi}
- {name: w, kind: whole, gpus: {model: Tesla T4, count: 2, memory_mib: 16000}}
- {name: s, kind: gpushare, gpus: {model: Tesla T4, count: 2, memory_mib: 16000}}
- {name: c, kind: cpu, cpu: 2}
"""


class World:
    """A store with fake nodes, and a clock."""

    def __init__(self) -> None:
        self.now_s = 0.0
        ids = (f"{number:08x}-0000-4000-8000-000000000000" for number in itertools.count(1))
        self.store = Store(clock=self.clock, ids=lambda: next(ids))
        self.timers = Timers(lambda: self.now_s)
        self.fake = FakeNodes(self.store, self.timers, self.clock)
        self.stamps = itertools.count(1)
        shapes = parse_shapes(NODES_YAML, "test")
        self.fake.start(node_objects(shapes, self.store.now()))

    def clock(self) -> datetime:
        return START + timedelta(seconds=self.now_s)

    def pass_time(self, seconds: float = 0.0) -> None:
        """Move the clock in small steps, running what becomes due."""
        end_s = self.now_s + seconds
        while True:
            while self.timers.run_due():
                pass
            if self.now_s >= end_s:
                return
            self.now_s = min(end_s, self.now_s + 0.1)

    def pod(self, name: str, limits: Json, annotations: Json | None = None) -> Json:
        container = {"name": "main", "image": "i:1", "resources": {"limits": limits}}
        metadata = {"name": name, "annotations": annotations or {}}
        made = {"metadata": metadata, "spec": {"containers": [container]}}
        return self.store.create(PODS, "default", made)

    def bind(self, name: str, node: str, annotations: Json | None = None) -> None:
        metadata = {"name": name, "annotations": annotations or {}}
        bind(self.store, "default", name, {"metadata": metadata, "target": {"name": node}})

    def bind_vgpu(self, name: str, *cards: tuple[int, int, int], node: str = "v") -> None:
        """Cards are (index, MiB, cores)."""
        holdings = tuple(
            Holding(vgpu.FAMILY, 0, card_id(node, index), memory_mib, cores_pct)
            for index, memory_mib, cores_pct in cards
        )
        written = vgpu.binding_annotations(node, holdings, next(self.stamps), 1)
        self.bind(name, node, written)

    def bind_share(self, name: str, *cards: int) -> None:
        holdings = tuple(Holding(gpushare.FAMILY, 0, str(card), 0, 0) for card in cards)
        self.bind(name, "s", gpushare.binding_annotations(holdings, next(self.stamps)))

    def get(self, name: str) -> Json:
        return self.store.get(PODS, "default", name)

    def phase(self, name: str) -> str:
        return str(self.get(name)["status"]["phase"])

    def annotation(self, name: str, key: str) -> str | None:
        found: str | None = self.get(name)["metadata"]["annotations"].get(key)
        return found

    def node(self, name: str) -> Json:
        return self.store.get(NODES, "", name)

    def annotate_node(self, name: str, value: str | None) -> None:
        self.store.merge_patch(NODES, "", name, {"metadata": {"annotations": {FAULT: value}}})

    def allocatable(self, node: str, resource: str) -> str:
        return str(self.node(node)["status"]["allocatable"][resource])

    def used(self, node: str) -> dict[int, tuple[int, int, int]]:
        """Holders, MiB and cores handed out, by card index."""
        return {
            card["index"]: (
                len(card["holders"]),
                card["used_memory_mib"],
                card["used_cores_pct"],
            )
            for card in self.fake.report()["cards"]
            if card["node"] == node
        }

    def incidents(self) -> list[str]:
        return [incident.code for incident in self.fake.books.incidents]

    def events(self) -> list[tuple[str, str, str]]:
        found, _ = self.store.list(EVENTS)
        return [(e["involvedObject"]["name"], e["reason"], e["message"]) for e in found]


@pytest.fixture
def world() -> World:
    return World()


def ask(number: int = 1, memory_mib: int = 4000, cores_pct: int = 25) -> Json:
    return {
        keys.VGPU_NUMBER: number,
        keys.VGPU_MEMORY: memory_mib,
        keys.VGPU_CORES: cores_pct,
    }


def test_a_node_shows_what_its_plugin_registers(world: World) -> None:
    node = world.node("v")
    register = vgpu.decode_register(node["metadata"]["annotations"][keys.NODE_VGPU_REGISTER])
    assert [(card.id, card.model, card.memory_mib, card.slots) for card in register.cards] == [
        (card_id("v", index), "NVIDIA-Tesla T4", 16000, 2) for index in (0, 1)
    ]
    assert world.allocatable("v", keys.VGPU_NUMBER) == "4"
    assert world.allocatable("v", keys.VGPU_MEMORY) == "32000"
    assert world.allocatable("v", keys.VGPU_CORES) == "200"
    assert world.node("s")["status"]["capacity"][keys.GPU_MEMORY] == "32000"
    assert world.allocatable("w", "nvidia.com/gpu") == "2"
    assert world.store.get(LEASES, "kube-node-lease", "v")["spec"]["holderIdentity"] == "v"


def test_a_vgpu_pod_is_served_runs_and_gives_back(world: World) -> None:
    world.pod("p", ask(2, 3000, 50), {RUN_DURATION: "5s", START_DELAY: "500ms"})
    world.bind_vgpu("p", (1, 3000, 50), (0, 3000, 50))
    assert world.annotation("p", keys.BIND_PHASE) == keys.PHASE_ALLOCATING
    world.pass_time()
    assert world.annotation("p", keys.BIND_PHASE) == keys.PHASE_SUCCESS
    assert world.annotation("p", keys.VGPU_TIME) == keys.VGPU_TIME_DONE
    assert world.annotation("p", keys.DEVICES_TO_ALLOCATE) == ""
    assert world.used("v") == {0: (1, 3000, 50), 1: (1, 3000, 50)}
    assert world.phase("p") == "Pending"
    world.pass_time(1)
    status = world.get("p")["status"]
    assert status["phase"] == "Running"
    assert status["podIP"].startswith("10.")
    assert [s["ready"] for s in status["containerStatuses"]] == [True]
    assert {c["type"]: c["status"] for c in status["conditions"]}["PodScheduled"] == "True"
    world.pass_time(5)
    assert world.phase("p") == "Succeeded"
    assert world.used("v") == {0: (0, 0, 0), 1: (0, 0, 0)}
    assert world.incidents() == []


def test_two_pending_records_of_one_size_can_be_swapped(world: World) -> None:
    """Why the binder paces: the plugin sees numbers of devices, not pods. Smallest time wins."""
    world.pod("late", ask())
    world.pod("early", ask())
    world.bind_vgpu("early", (0, 4000, 25))
    world.bind_vgpu("late", (1, 4000, 25))
    # The kubelet meets `late` first, as its watch may deliver it.
    late = world.get("late")["metadata"]["uid"]
    early = world.get("early")["metadata"]["uid"]
    patch = {"metadata": {"annotations": {keys.VGPU_TIME: "0"}}}
    world.store.merge_patch(PODS, "default", "late", patch)
    world.pass_time()
    assert world.incidents() == ["Misdelivered", "Misdelivered"]
    holders = {
        card["index"]: [holder["uid"] for holder in card["holders"]]
        for card in world.fake.report()["cards"]
        if card["node"] == "v"
    }
    assert holders == {0: [late], 1: [early]}


def test_swapping_equal_records_is_harmless(world: World) -> None:
    for name in ("a", "b"):
        world.pod(name, ask())
        world.bind_vgpu(name, (0, 4000, 25))
    patch = {"metadata": {"annotations": {keys.VGPU_TIME: "0"}}}
    world.store.merge_patch(PODS, "default", "b", patch)
    world.pass_time()
    assert world.incidents() == []
    assert world.used("v")[0] == (2, 8000, 50)


def test_gpu_memory_of_equal_size_can_be_swapped_too(world: World) -> None:
    for name, card in (("late", 0), ("early", 1)):
        world.pod(name, {keys.GPU_MEMORY: 4096})
        world.bind_share(name, card)
    patch = {"metadata": {"annotations": {keys.PREDICATE_TIME: "0"}}}
    world.store.merge_patch(PODS, "default", "early", patch)
    world.pass_time()
    assert world.incidents() == ["Misdelivered", "Misdelivered"]


def test_records_of_different_sizes_are_told_apart(world: World) -> None:
    world.pod("two", ask(2))
    world.pod("one", ask(1))
    world.bind_vgpu("one", (0, 4000, 25))
    world.bind_vgpu("two", (0, 4000, 25), (1, 4000, 25))
    world.pass_time()
    assert world.incidents() == []
    assert world.used("v") == {0: (2, 8000, 50), 1: (1, 4000, 25)}


@pytest.mark.parametrize(
    ("first", "second", "why"),
    [
        ((0, 9000, 10), (0, 9000, 10), "18000 MiB handed out of 16000"),
        ((0, 1000, 60), (0, 1000, 60), "120 % of the cores handed out"),
        ((0, 1000, 100), (0, 1000, 0), "has alone"),
    ],
)
def test_an_oversold_card_is_seen(
    world: World, first: tuple[int, int, int], second: tuple[int, int, int], why: str
) -> None:
    for name, card in (("a", first), ("b", second)):
        world.pod(name, ask(1, card[1], card[2]))
        world.bind_vgpu(name, card)
        world.pass_time()
    (incident,) = world.fake.books.oversold
    assert (incident.node, incident.card, incident.pod) == ("v", card_id("v", 0), "default/b")
    assert why in incident.message
    assert world.fake.report()["counts"]["Oversold"] == 1


def test_too_many_holders_of_a_card_are_seen(world: World) -> None:
    for name in "abc":
        world.pod(name, ask(1, 1000, 10))
        world.bind_vgpu(name, (0, 1000, 10))
        world.pass_time()
    assert [incident.message for incident in world.fake.books.oversold] == [
        "3 holders on a card of 2"
    ]


def test_more_than_the_node_offers_is_not_admitted(world: World) -> None:
    for name in "abcde":
        world.pod(name, ask(1, 1000, 10))
        world.bind_vgpu(name, (ord(name) % 2, 1000, 10))
        world.pass_time()
    status = world.get("e")["status"]
    assert (status["phase"], status["reason"]) == ("Failed", "UnexpectedAdmissionError")
    assert "Requested: 1, Available: 0" in status["message"]
    assert world.incidents() == ["Refused"]
    assert world.events()[0][:2] == ("e", "UnexpectedAdmissionError")


def test_cpu_is_checked_as_a_kubelet_checks_it(world: World) -> None:
    world.pod("big", {"cpu": "1500m"})
    world.bind("big", "c")
    world.pod("more", {"cpu": "1500m"})
    world.bind("more", "c")
    world.pass_time()
    assert world.phase("big") == "Running"
    status = world.get("more")["status"]
    assert (status["phase"], status["reason"]) == ("Failed", "OutOfcpu")
    world.store.delete(PODS, "default", "big")
    world.pass_time(1)
    world.pod("again", {"cpu": "1500m"})
    world.bind("again", "c")
    world.pass_time()
    assert world.phase("again") == "Running"


def test_allocate_fails_on_request(world: World) -> None:
    world.pod("p", ask(), {FAULT: "allocate-fails"})
    world.bind_vgpu("p", (0, 4000, 25))
    world.pass_time()
    assert world.annotation("p", keys.BIND_PHASE) == keys.PHASE_FAILED
    assert world.annotation("p", keys.VGPU_TIME) == keys.VGPU_TIME_DONE
    assert world.get("p")["status"]["reason"] == "UnexpectedAdmissionError"
    assert world.used("v") == {0: (0, 0, 0), 1: (0, 0, 0)}
    # The failed record stays, but the next pod has the smaller time.
    world.pod("q", ask())
    world.bind_vgpu("q", (1, 4000, 25))
    world.pass_time()
    assert world.phase("q") == "Running"
    assert world.incidents() == []


def test_a_vgpu_pod_without_a_record_fails(world: World) -> None:
    world.pod("p", ask())
    world.bind("p", "v")
    world.pass_time()
    status = world.get("p")["status"]
    assert status["phase"] == "Failed"
    assert "cannot get valid pod" in status["message"]


def test_gpu_memory_is_assigned_by_index(world: World) -> None:
    for name in "ab":
        world.pod(name, {keys.GPU_MEMORY: 4096})
        world.bind_share(name, 1)
        world.pass_time()
        assert world.annotation(name, keys.GPU_ASSIGNED) == "true"
        assert world.phase(name) == "Running"
    assert world.used("s") == {0: (0, 0, 0), 1: (2, 8192, 0)}
    world.pod("number", {keys.GPU_NUMBER: 1})
    world.bind_share("number", 0)
    world.pass_time()
    assert world.used("s")[0] == (1, 16000, 100)
    assert world.incidents() == []
    world.pod("greedy", {keys.GPU_NUMBER: 1})
    world.bind_share("greedy", 1)
    world.pass_time()
    assert "Oversold" in world.incidents()


@pytest.mark.parametrize("index", [None, "7", "x"])
def test_a_gpu_index_that_names_no_card_fails(world: World, index: str | None) -> None:
    world.pod("p", {keys.GPU_MEMORY: 4096})
    world.bind("p", "s", {} if index is None else {keys.GPU_INDEX: index})
    world.pass_time()
    assert world.get("p")["status"]["reason"] == "UnexpectedAdmissionError"


def test_whole_cards_are_counted(world: World) -> None:
    world.pod("two", {"nvidia.com/gpu": 2})
    world.bind("two", "w")
    world.pod("one", {"nvidia.com/gpu": 1})
    world.bind("one", "w")
    world.pass_time()
    assert world.phase("two") == "Running"
    assert world.phase("one") == "Failed"
    assert world.used("w") == {0: (1, 0, 100), 1: (1, 0, 100)}
    assert world.incidents() == ["Refused"]


def test_devices_that_a_node_does_not_have_are_noticed(world: World) -> None:
    world.pod("p", ask())
    world.bind_vgpu("p", (0, 4000, 25), node="c")
    world.pass_time()
    assert world.phase("p") == "Running"
    assert set(world.incidents()) == {"NotOffered"}


@pytest.mark.parametrize("name", [lambda: "1", lambda: card_id("v", 1)])
def test_a_card_can_be_unhealthy_and_recover(world: World, name: Callable[[], str]) -> None:
    before = world.node("v")
    world.annotate_node("v", f"card-unhealthy={name()}")
    text = world.node("v")["metadata"]["annotations"][keys.NODE_VGPU_REGISTER]
    assert [card.healthy for card in vgpu.decode_register(text).cards] == [True, False]
    assert world.allocatable("v", keys.VGPU_NUMBER) == "2"
    assert world.allocatable("v", keys.VGPU_MEMORY) == "16000"
    assert world.allocatable("v", keys.VGPU_CORES) == "100"
    world.annotate_node("v", None)
    after = world.node("v")
    assert after["status"] == before["status"]
    assert after["metadata"]["annotations"] == before["metadata"]["annotations"]


def test_other_families_show_broken_cards_their_own_way(world: World) -> None:
    world.annotate_node("s", "card-unhealthy=0,card-unhealthy=1")
    assert world.node("s")["metadata"]["annotations"][keys.GPU_UNHEALTHY_IDS] == "0,1"
    assert world.allocatable("s", keys.GPU_MEMORY) == "0"
    world.annotate_node("s", None)
    assert keys.GPU_UNHEALTHY_IDS not in world.node("s")["metadata"]["annotations"]
    world.annotate_node("w", "card-unhealthy=0")
    assert world.allocatable("w", "nvidia.com/gpu") == "1"
    world.pod("p", {"nvidia.com/gpu": 1})
    world.bind("p", "w")
    world.pass_time()
    assert world.used("w") == {0: (0, 0, 0), 1: (1, 0, 100)}


def test_a_dead_plugin_offers_nothing(world: World) -> None:
    world.annotate_node("v", "plugin-dies")
    assert world.allocatable("v", keys.VGPU_NUMBER) == "0"
    world.pod("p", ask())
    world.bind_vgpu("p", (0, 4000, 25))
    world.pass_time()
    assert world.get("p")["status"]["reason"] == "UnexpectedAdmissionError"
    world.annotate_node("v", None)
    assert world.allocatable("v", keys.VGPU_NUMBER) == "4"


def test_pods_of_a_node_that_is_gone_are_removed_after_a_while(world: World) -> None:
    world.pod("p", ask())
    world.bind_vgpu("p", (0, 4000, 25))
    world.pass_time()
    world.annotate_node("v", "node-gone")
    assert world.store.find(NODES, "", "v") is None
    assert world.store.find(LEASES, "kube-node-lease", "v") is None
    world.pod("q", ask())
    world.bind_vgpu("q", (1, 4000, 25))
    world.pass_time(1)
    assert world.phase("p") == "Running"
    assert world.phase("q") == "Pending"
    world.pass_time(10)
    assert world.store.list(PODS)[0] == []
    assert world.used("v") == {0: (0, 0, 0), 1: (0, 0, 0)}


def test_a_deleted_pod_goes_after_a_short_grace(world: World) -> None:
    world.pod("p", ask(), {"allotment.dev/stop-delay": "2s"})
    world.bind_vgpu("p", (0, 4000, 25))
    world.pass_time()
    world.store.delete(PODS, "default", "p")
    world.pass_time(1)
    assert world.used("v")[0] == (1, 4000, 25), "it still runs"
    world.pass_time(1.5)
    assert world.store.find(PODS, "default", "p") is None
    assert world.used("v")[0] == (0, 0, 0)


def test_a_node_that_someone_else_creates_gets_a_kubelet_too(world: World) -> None:
    register = f"{card_id('x', 0)},2,8000,NVIDIA-Tesla T4,true,hami-core:"
    offered = {"cpu": "4", keys.VGPU_NUMBER: "2", keys.VGPU_MEMORY: "8000", keys.VGPU_CORES: "100"}
    world.pod("p", ask())
    world.bind_vgpu("p", (0, 4000, 25), node="x")
    world.pass_time(1)
    world.store.create(
        NODES,
        "",
        {
            "metadata": {"name": "x", "annotations": {keys.NODE_VGPU_REGISTER: register}},
            "status": {"capacity": offered, "allocatable": offered},
        },
    )
    world.pass_time(20)
    assert world.phase("p") == "Running"
    assert world.used("x") == {0: (1, 4000, 25)}


def test_wrong_values_are_events_and_nothing_else(world: World) -> None:
    world.pod("p", ask(), {FAULT: "burns", RUN_DURATION: "soon", START_DELAY: "-1s"})
    world.bind_vgpu("p", (0, 4000, 25))
    world.annotate_node("v", "card-unhealthy=9, smoke")
    world.annotate_node("v", "card-unhealthy=9, smoke, plugin-dies")
    world.annotate_node("v", None)
    world.annotate_node("c", "card-unhealthy=0")
    world.pass_time(5)
    assert world.phase("p") == "Running"
    said = world.events()
    assert sorted(name for name, reason, _ in said if reason == "InvalidAnnotation") == [
        *("c", "p", "p", "p", "v", "v"),
    ]
    assert (
        "p",
        "InvalidAnnotation",
        "annotation allotment.dev/run-duration: 'soon' is ignored; "
        "wanted: a duration like 500ms, 5s, 2m or 1h30m, up to 30 days",
    ) in said


def test_a_duration_given_later_counts_from_the_start(world: World) -> None:
    world.pod("p", {})
    world.bind("p", "c")
    world.pass_time(3)
    patch = {"metadata": {"annotations": {RUN_DURATION: "5s"}}}
    world.store.merge_patch(PODS, "default", "p", patch)
    world.pass_time(1)
    assert world.phase("p") == "Running"
    world.pass_time(1.5)
    assert world.phase("p") == "Succeeded"


def test_heartbeats_change_the_lease_and_rarely_the_node(world: World) -> None:
    node, lease = world.node("v"), world.store.get(LEASES, "kube-node-lease", "v")
    world.pass_time(25)
    assert world.node("v") is node
    assert world.store.get(LEASES, "kube-node-lease", "v") != lease
    world.pass_time(300)
    after = world.node("v")
    assert after["status"]["conditions"] != node["status"]["conditions"]
    assert after["status"]["allocatable"] == node["status"]["allocatable"]


def test_a_life_costs_four_writes_to_the_pod() -> None:
    """Created, bound, served by the plugin, running: what every watcher pays for."""
    world = World()
    before = world.store.resource_version
    world.pod("p", {keys.VGPU_NUMBER: 1})
    world.bind_vgpu("p", (0, 4_000, 10))
    world.pass_time(1)
    assert world.store.get(PODS, "default", "p")["status"]["phase"] == "Running"
    assert world.store.resource_version - before == 4
