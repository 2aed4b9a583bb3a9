"""Waiting pods are told what is in the way by name, and what would make them fit."""

from typing import Any

import msgspec
import pytest

from allotment.core.explain.causes import advice
from allotment.core.explain.causes.counterfactual import Bench, asked_most, found_on
from allotment.core.explain.gang import explain_gang
from allotment.core.explain.history.pod_story import PodStory
from allotment.core.explain.node import explain_node
from allotment.core.explain.pod import explain
from allotment.core.explain.queue import explain_queue
from allotment.core.explain.rows.life import PodExplanation
from allotment.core.explain.rows.words import fit_text
from allotment.core.ledger.model import ClusterState
from allotment.core.ledger.state import apply, apply_all
from allotment.core.queues.round import verdict as verdicts
from allotment.core.queues.round.rounds import Rounds
from allotment.core.queues.round.verdict import GroupVerdict, group_verdict, verdict
from allotment_cli.read.explain_gang import gang_lines
from allotment_cli.read.explain_queue import queue_lines
from allotment_cli.show.explain_text import explanation_lines
from allotment_proto.codec import decode_envelope
from allotment_proto.events import Event, PolicyLoaded, PriorityClassObserved, QueueObserved
from allotment_proto.facts import (
    Constraints,
    DeviceRequest,
    Holding,
    PluginUse,
    PodRequest,
    Policy,
    Problem,
    Selection,
    Taint,
)
from tests import build
from tests.recording import Recorder, vgpu
from tests.unit.rounds_world import World, group

SERVING = Taint("dedicated", "serving", "NoSchedule")
NUMBER = "volcano.sh/vgpu-number"


def explained(
    log: Recorder, name: str, namespace: str = "default", node: str | None = None
) -> PodExplanation:
    story, state = PodStory(namespace, name), ClusterState()
    for record in log.records:
        envelope = decode_envelope(record.payload)
        apply_all(state, envelope.events, record.seq)
        story.follow(record.seq, record.time_ns // 1_000_000, envelope, lambda: state)
    return explain(state, story, log.now_ms, node=node)


def shown(log: Recorder, name: str = "p") -> str:
    return "\n".join(explanation_lines(explained(log, name)))


def changes(found: PodExplanation) -> list[tuple[str, int]]:
    return [(each.text, each.nodes_fit) for each in found.counterfactuals]


def with_selection(request: PodRequest, **fields: Any) -> PodRequest:
    return msgspec.structs.replace(request, selection=Selection(**fields))


def with_constraints(request: PodRequest, **fields: Any) -> PodRequest:
    return msgspec.structs.replace(request, constraints=Constraints(**fields))


def three_nodes() -> Recorder:
    """An A100 and a T4 node, and one that is kept for serving."""
    log = Recorder()
    log.node("gpu-a", "NVIDIA-A100", cards=8, extended=(("nvidia.com/gpu", 8),))
    log.node("gpu-b", "NVIDIA-T4", cards=2, memory_mib=16_384)
    log.node("gpu-c", "NVIDIA-A100", cards=2, taints=(SERVING,))
    return log


def mps_beside_another() -> Recorder:
    """A node in the mode mps with an L40S, and one A100."""
    log = Recorder()
    card = build.card(0, model="NVIDIA-L40S", memory_mib=46_068, mode="mps")
    inventory = msgspec.structs.replace(build.node("x", [card]).inventories[0], mode="mps")
    mps = msgspec.structs.replace(build.node("gpu-mps", 0), inventories=(inventory,))
    log.append("allot.log.node.x", "w", mps)
    log.node("gpu-a", "NVIDIA-A100", cards=1)
    return log


def test_what_nodes_lack_is_not_said_of_a_pod_that_fits_or_that_its_queue_refuses() -> None:
    log = mps_beside_another()
    log.pod("p", vgpu())
    assert explained(log, "p").lacks == ()
    world = batched_world()
    world.tell(build.pod("first", vgpu(count=8, cores_pct=100), name="first"))
    world.decide()
    world.tell(build.pod("lost", vgpu(), name="lost", queue="nowhere"))
    found = of_world(world, "lost")
    assert found.status.refused is not None
    assert found.status.fits_now == 0
    assert found.lacks == ()


def batched_world() -> World:
    """A node and a queue."""
    world = World(build.node("n1", 8), policy=Policy(tiers=TIERS, actions=("allocate",)))
    world.tell(QueueObserved(uid="a", name="team-a", rv=1))
    return world


def test_a_queue_names_the_cause_of_a_pod_that_the_pod_is_explained_with() -> None:
    world = World(
        build.node("n1", 0),
        build.node("n2", 0),
        build.node("n3", 1),
        policy=Policy(tiers=TIERS, actions=("allocate",)),
    )
    world.tell(QueueObserved(uid="a", name="team-a", rv=1))
    world.tell(build.pod("big", vgpu(memory_mib=100_000), name="big", queue="team-a"))
    world.decide()
    assert of_world(world, "big").status.cause == "InsufficientGPUMemory"
    (waiting,) = explain_queue(world.state, "team-a", 1_000).waiting
    assert waiting.reason is not None
    assert waiting.reason.code == "InsufficientGPUMemory"


def test_a_pod_that_waits_for_a_claim_is_not_called_wrong() -> None:
    log = three_nodes()
    claim = Problem("VolumeNotReady", "claim data", "does not exist")
    log.pod("p", PodRequest(), problem=claim)
    text = shown(log)
    assert "Pending 0s: waits for a volume" in text
    assert "Wants      not known before its volumes are there" in text
    assert "Problem    VolumeNotReady: claim data does not exist" in text


def test_a_pod_whose_claim_is_missing_says_what_it_wants_beside_it() -> None:
    log = Recorder()
    log.node("n1", cards=2)
    claim = Problem("VolumeNotReady", "claim data", "does not exist")
    asks = build.request(build.wants(8_000, 25))
    log.pod("p", PodRequest(), problem=claim, asks=asks)
    text = shown(log)
    assert "Wants      1 GPU: 7.8 GiB memory, 25% compute" in text
    assert "not known before" not in text


def test_a_gang_says_what_a_member_wants_whose_claim_is_missing() -> None:
    world = World(build.node("n1", 4))
    world.tell(group("a", 2))
    asks = build.request(build.wants(8_000, 25))
    claim = Problem("VolumeNotReady", "claim data", "does not exist")
    world.tell(build.pod("a-0", asks, name="a-0", group="default/a"))
    lacking = build.pod("a-1", PodRequest(), name="a-1", group="default/a", problem=claim)
    world.tell(msgspec.structs.replace(lacking, asks=asks))
    (wanted,) = explain_gang(world.state, "default/a", 1_000).wants
    assert (wanted.pods, wanted.request.compute_percent) == (2, 25)


def test_without_a_change_that_helps_the_cause_has_advice_of_its_own() -> None:
    log = Recorder()
    log.node("n1")
    log.pod("p")
    found = explained(log, "p")
    assert found.counterfactuals == ()
    assert found.advice.startswith("wait; if it lasts, ask allot doctor")


def test_the_smallest_change_comes_first_and_each_is_a_patch() -> None:
    log = three_nodes()
    for name in ("a", "b"):
        log.decide(log.pod(name, vgpu(8, 25_000, 10)))
    log.decide(log.pod("p", with_selection(vgpu(1, 20_000, 10), use_types=("A100",))))
    found = explained(log, "p")
    assert [each.text for each in found.counterfactuals] == [
        "tolerate dedicated=serving:NoSchedule",
        "ask for 15.6 GiB of card memory, 3.9 GiB less",
        "when default/a ends on gpu-a",
    ]
    first = found.counterfactuals[0].change
    assert (first.op, first.path) == ("add", "/spec/tolerations/-")
    assert first.value == {
        "key": "dedicated",
        "operator": "Equal",
        "value": "serving",
        "effect": "NoSchedule",
    }
    assert found.counterfactuals[1].change.value == (40_960 - 25_000) << 20
    assert found.closest[0].short == {"memoryBytes": (20_000 - 15_960) << 20}


def test_the_amounts_that_nodes_list_shrink_with_what_is_asked_for() -> None:
    """A pod that asks for less memory of a card asks less of the resource that says so, too."""
    log = Recorder()
    listed = ((NUMBER, 20), ("volcano.sh/vgpu-memory", 60_000))
    log.node("n1", cards=2, extended=listed)
    ask = DeviceRequest("vgpu", 0, "main", 1, 50_000, 0, 10)
    wanted = PodRequest(devices=(ask,), extended=((NUMBER, 1), ("volcano.sh/vgpu-memory", 50_000)))
    log.decide(log.pod("p", wanted))
    assert changes(explained(log, "p")) == [("ask for 40.0 GiB of card memory, 8.8 GiB less", 1)]


@pytest.mark.parametrize("scheduler", ["alotment", "default-scheduler"])
def test_a_pod_of_another_scheduler_is_told_whom_it_names(scheduler: str) -> None:
    log = three_nodes()
    log.policy(Policy(scheduler_names=("allotment", "volcano")))
    log.pod("p", scheduler=scheduler)
    found = explained(log, "p")
    said = f"its schedulerName is {scheduler}; this scheduler answers to allotment, volcano"
    meant = "; did you mean allotment?" if scheduler == "alotment" else ""
    assert found.status.notes == (said + meant,)
    assert (found.status.scheduler, found.status.answers_to) == (
        scheduler,
        ("allotment", "volcano"),
    )
    assert (found.status.nodes, found.funnel) == (0, ())
    assert "nodes fit" not in shown(log)
    assert f"handled by the scheduler {scheduler}" in shown(log)


TIERS = (
    (PluginUse("priority"), PluginUse("gang")),
    (PluginUse("drf"), PluginUse("predicates"), PluginUse("capacity")),
)
GATED = ("enqueue", "allocate", "backfill")


def counted(cards: int, **more: Any) -> PodRequest:
    request = build.request(build.wants(1_000, 0, cards))
    return msgspec.structs.replace(request, extended=((NUMBER, cards),), **more)


def queued(actions: tuple[str, ...]) -> World:
    """Queue `team-a` may have two cards and holds both."""
    world = World(
        build.node("n1", 8, extended=((NUMBER, 80),)), policy=Policy(tiers=TIERS, actions=actions)
    )
    world.tell(QueueObserved(uid="a", name="team-a", rv=1, capability=((NUMBER, 2_000),)))
    world.tell(QueueObserved(uid="b", name="team-b", rv=1))
    world.tell(build.pod("q1", counted(2), name="q1", queue="team-a"))
    world.decide()
    return world


def of_world(world: World, uid: str) -> PodExplanation:
    """The explanation of a pod that was seen once."""
    fact, story = world.state.pods[uid].fact, PodStory("default", uid)
    log = Recorder()
    log.append(f"allot.log.pod.{uid}", "w", fact)
    record = log.records[0]
    story.follow(1, 0, decode_envelope(record.payload), lambda: world.state)
    return explain(world.state, story, 1_000)


def test_without_any_quota_nothing_is_said_of_one() -> None:
    world = queued(GATED)
    world.tell(build.pod("big", counted(1, cpu_milli=1_000_000), name="big", queue="team-b"))
    world.decide()
    text = "\n".join(explanation_lines(of_world(world, "big")))
    assert "1000 CPUs requested; the largest node has 8" in text
    assert "uota" not in text.replace("no queue's quota limits it", "")


def sized(world: World, **memory_mib: int) -> None:
    """Pods without a group, each with so much of a card."""
    for name, amount in memory_mib.items():
        world.tell(build.pod(name, build.request(build.wants(amount, 0)), name=name))


def test_a_gang_of_unequal_members_is_told_whose_end_makes_room() -> None:
    """The smaller member has a place on the node; it is not one of those that could end."""
    world = World(build.node("n1", 1))
    sized(world, h1=3_000, h2=3_000, h3=3_000)
    world.decide()
    world.tell(group("a", 2))
    for uid, amount in (("a-m", 6_000), ("b", 12_000)):
        world.tell(
            build.pod(uid, build.request(build.wants(amount, 0)), name=uid, group="default/a")
        )
    found = explain_gang(world.state, "default/a", 1_000)
    assert "a minimum of 1 in place of 2" in [each.text for each in found.counterfactuals]
    assert not [each.text for each in found.counterfactuals if "a-m" in each.text]


def big_cluster(nodes: int, pods: int) -> ClusterState:
    """Full nodes of every kind of obstacle."""
    state, seq = ClusterState(), 0
    events: list[Event] = [PolicyLoaded(policy=Policy(), source="", text_sha256="")]
    for n in range(nodes):
        cards = [build.card(k, id=f"n{n}-{k}") for k in range(8)]
        taints = (SERVING,) if n % 5 == 1 else ()
        labels = (("zone", f"z{n % 3}"),)
        events.append(
            build.node(
                f"n{n}",
                cards,
                taints=taints,
                labels=labels,
                unschedulable=n % 5 == 2,
                cpu_milli=1_000_000,
                memory_bytes=1 << 44,
                pods=500,
            )
        )
    for p in range(pods):
        held = (Holding("vgpu", 0, f"n{p % nodes}-{p // nodes % 8}", 9_000 + p % 7, 20),)
        events.append(
            build.pod(
                f"p{p}",
                build.request(build.wants(9_000, 20)),
                name=f"p{p}",
                node=f"n{p % nodes}",
                holdings=held,
                phase="Running",
            )
        )
    for seq, event in enumerate(events, 1):
        apply(state, event, seq)
    return state


@pytest.mark.parametrize(("nodes", "pods"), [(100, 1_000), (1_000, 10_000)])
def test_the_work_is_bounded_for_any_number_of_nodes_and_pods(nodes: int, pods: int) -> None:
    state = big_cluster(nodes, pods)
    request = with_constraints(
        build.request(build.wants(15_000, 90)), node_selector=(("zone", "z0"),)
    )
    bench = Bench(state, list(state.nodes.values()))
    assert found_on(bench, request)
    assert bench.asked <= 20 * nodes + 2_000 <= asked_most(nodes)


def opened_rounds(monkeypatch: pytest.MonkeyPatch) -> list[ClusterState]:
    """The states on which rounds are opened from now on."""
    opened: list[ClusterState] = []
    really = Rounds.ask

    def ask(rounds: Rounds, *args: Any) -> Any:
        opened.append(rounds.state)
        return really(rounds, *args)

    monkeypatch.setattr(Rounds, "ask", ask)
    return opened


def calls(monkeypatch: pytest.MonkeyPatch, name: str) -> list[tuple[Any, ...]]:
    """With what a function is called from now on where verdicts are made."""
    made: list[tuple[Any, ...]] = []
    really = getattr(verdicts, name)

    def called(*args: Any) -> Any:
        made.append(args)
        return really(*args)

    monkeypatch.setattr(verdicts, name, called)
    return made


def test_a_node_opens_one_round_for_all_that_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    world = queued(("allocate", "backfill"))
    for number in range(40):
        request = build.request(build.wants(1_000 + number, 0))
        world.tell(build.pod(f"w{number}", request, name=f"w{number}", queue="team-b"))
        refused = msgspec.structs.replace(request, extended=((NUMBER, 1),))
        world.tell(build.pod(f"r{number}", refused, name=f"r{number}", queue="team-a"))
    opened, reckoned = opened_rounds(monkeypatch), calls(monkeypatch, "limits_of")
    found = explain_node(world.state, "n1", 1_000)
    assert [each.verdict for each in found.answers] == ["fits"] * 80
    assert len(opened) == 1
    assert not reckoned, "a refusal comes with its amounts"


@pytest.mark.parametrize(
    ("cards", "kept"),
    [
        pytest.param(1, 3, id="much would help"),
        pytest.param(100, 0, id="nothing would"),
    ],
)
def test_the_rounds_are_bounded_where_a_queue_refuses(
    cards: int, kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each round is opened on the whole state; what it says is not asked again."""
    world = queued(("allocate", "backfill"))
    for name in ("team-c", "team-d", "team-e"):
        world.tell(QueueObserved(uid=name, name=name, rv=1))
    world.tell(build.pod("q2", counted(cards), name="q2", queue="team-a"))
    ruled = verdict(world.state, world.state.pods["q2"].fact)
    opened = opened_rounds(monkeypatch)
    found = advice.pod_advice(world.state, world.state.pods["q2"].fact, ruled)
    assert [each.found.nodes_fit for each in found] == [1] * kept
    assert len({type(each.found.deed) for each in found}) == (2 if kept else 0)
    for_room = 1  # what there is to try
    assert len(opened) <= for_room + (kept or advice.ROUNDS_MAX)


def test_the_rounds_are_bounded_for_a_gang(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every member of which there is a part could ask for less, and every holder could end."""
    world = World(*(build.node(f"n{n}", 2) for n in range(4)))
    sized(world, **{f"h{n}": 9_000 + n for n in range(8)})
    world.decide()
    world.gang("a", 6, memory_mib=8_000)
    ruled = group_verdict(world.state, "default/a")
    assert isinstance(ruled, GroupVerdict)
    opened = opened_rounds(monkeypatch)
    assert advice.gang_advice(world.state, "default/a", ruled)
    assert len(opened) <= advice.ROUNDS_MAX


def test_a_group_at_its_gate_says_what_it_wants() -> None:

    world = queued(GATED)
    world.tell(group("g", 3, queue="team-a", phase="Pending", min_resources=((NUMBER, 3_000),)))
    text = "\n".join(gang_lines(explain_gang(world.state, "default/g", 1_000)))
    assert f"Gate needs {NUMBER} 3" in text
    assert f"queue team-a: 2 of 2 {NUMBER} in use, 3 requested" in text
    (limit,) = [
        line
        for line in queue_lines(explain_queue(world.state, "team-a", 1_000))
        if line.strip().startswith(NUMBER)
    ]
    assert limit.split() == [NUMBER, "2", "0", "3", "2", "2"]


def test_asking_changes_nothing() -> None:
    world = queued(GATED)
    world.tell(build.pod("q2", counted(1), name="q2", queue="team-a"))
    before = world.round(["q2"])
    fact = world.state.pods["q2"].fact

    assert advice.pod_advice(world.state, fact, verdict(world.state, fact))
    assert world.round(["q2"]) == before


def outranked(actions: tuple[str, ...]) -> World:
    """A card that two pods of priority 100 hold, and classes above and below them."""
    tiers = ((PluginUse("priority"),), (PluginUse("gang"), PluginUse("proportion")))
    world = World(build.node("n1", 1), policy=Policy(actions=actions, tiers=tiers))
    for name, value in (("low", 10), ("batch", 100), ("high", 1_000), ("urgent", 5_000)):
        world.tell(PriorityClassObserved(uid=name, name=name, rv=1, value=value))
    world.tell(PriorityClassObserved(uid="s", name="system-node-critical", rv=1, value=500))
    for name, klass, value in (("a", "batch", 100), ("b", "batch", 100), ("p", "low", 10)):
        asked = build.request(build.wants(8_000 if name != "p" else 16_000, 0))
        ranked = {"priority": value, "priority_class": klass, "preemptable": True}
        world.tell(build.pod(name, asked, name=name, queue="default", **ranked))
        world.decide()
        world.bind()
    return world


def test_preemption_is_offered_with_the_class_and_who_would_go() -> None:
    world = outranked(("enqueue", "allocate", "preempt"))
    fact = world.state.pods["p"].fact
    found = [
        each.found for each in advice.pod_advice(world.state, fact, verdict(world.state, fact))
    ]
    assert found[-1].text == ("with priority class high (≥ 101), displacing default/a, default/b")
    assert found[-1].change.value == "high"


def test_preemption_is_not_offered_where_nobody_is_evicted() -> None:
    world = outranked(("enqueue", "allocate", "backfill"))
    fact = world.state.pods["p"].fact
    found = advice.pod_advice(world.state, fact, verdict(world.state, fact))
    assert not [each for each in found if "priority" in each.found.text]


def test_what_would_fit_empty_nodes_says_how_many_take_it_now() -> None:
    world = World(build.node("n1", 1), build.node("n2", 1))
    world.tell(build.pod("a", build.request(build.wants(1_000, 0)), name="a"))
    world.decide()
    world.tell(build.pod("p", build.request(build.wants(99_000, 0)), name="p"))
    fact = world.state.pods["p"].fact
    found = advice.empty_advice(world.state, fact.request)
    memory = next(each.shown() for each in found if "card memory" in each.found.text)
    assert (memory.nodes_fit, memory.nodes_fit_now) == (2, 1)
    assert fit_text(memory) == "2 nodes, 1 of them now"


def test_to_uncordon_the_node_that_is_meant_comes_before_another_one() -> None:
    host = "kubernetes.io/hostname"
    log = Recorder()
    log.node("n1", "NVIDIA-A100", cards=1, unschedulable=True)
    log.node("n2", "NVIDIA-A100", cards=1)
    log.pod("p", with_constraints(vgpu(), node_selector=((host, "n1"),)))
    texts = [each.text for each in explained(log, "p").counterfactuals]
    assert texts.index("uncordon node n1") < texts.index(f"select {host}=n2 in place of {host}=n1")


def test_what_a_pod_asks_another_scheduler_for_is_not_called_no_device() -> None:
    log = three_nodes()
    uid = log.pod("p", vgpu())
    log.observe(uid, scheduler="alotment", request=PodRequest(), card_resources=(NUMBER,))
    assert f"Wants      {NUMBER}: how much is left to its own scheduler" in shown(log)


def test_with_two_faults_it_is_said_that_no_single_change_helps() -> None:
    log = three_nodes()
    request = with_selection(vgpu(memory_mib=999_999), use_types=("H200",))
    log.pod("p", request)
    said = shown(log)
    assert "What would" not in said
    assert "Advice     no single change makes it fit these nodes, even empty ones" in said
