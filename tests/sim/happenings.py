"""What happens to a cluster: pods come, end and are deleted, nodes change, strangers bind pods."""

import random
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from allotment_proto.events import NodeObserved, PodObserved
from allotment_proto.facts import (
    CardFact,
    DeviceRequest,
    Holding,
    Inventory,
    Policy,
    Problem,
    Selection,
)
from tests import build
from tests.sim.api import UNREADABLE, as_annotated

if TYPE_CHECKING:
    from tests.sim.world import World

PODS_MAX = 24
GARBAGE = Problem("BrokenAssignment", "annotation", "cannot be read")
NODES_MAX = 5


def populate(world: "World") -> None:
    for _ in range(world.dice.randint(1, 4)):
        _node_appears(world)
    for _ in range(world.dice.randint(1, 8)):
        _pod_appears(world)


def happen(world: "World") -> None:
    """Perhaps something, by the world's own faults."""
    dice, faults = world.dice, world.faults
    chances: tuple[tuple[float, Callable[[World], None]], ...] = (
        (0.06, _pod_appears),
        (faults.pod_deleted, _pod_deleted),
        (faults.pod_ended, _pod_ends),
        (faults.node_changed, _node_changes),
        (faults.node_shrunk, _node_shrinks),
        (faults.node_gone, _node_flaps),
        (faults.policy_changed, _policy_changes),
        (faults.stolen, _stranger_binds),
        (faults.edited, _owner_edits),
        (faults.intruded, _intruder_appears),
        (faults.unreadable, _unreadable_pod_appears),
        (faults.card_ill, _card_flaps),
        (faults.plugin_restarted, _plugin_restarts),
        (faults.watch_lost, _watch_breaks),
        (faults.forced * 0.2, _deleted_in_the_line),
    )
    for probability, action in chances:
        if dice.random() < probability:
            action(world)


def a_policy(dice: random.Random) -> Policy:
    return Policy(
        device_policy=dice.choice(("binpack", "spread", "none")),
        host_policy=dice.choice(("binpack", "spread", "none")),
        host_weight=dice.choice((0, 1, 50)),
        fit_weight=dice.choice((0, 10)),
    )


def a_node(dice: random.Random, name: str, uid: str) -> NodeObserved:
    cards = [
        build.card(i, id=f"{name}-{i}", slots=dice.choice((1, 2, 10)))
        for i in range(dice.choice((1, 1, 2, 3)))
    ]
    inventories = [Inventory("vgpu", "hami-core", tuple(cards))]
    if dice.random() < 0.3:
        shared = tuple(
            CardFact(str(i), i, "shared GPU", 1_000_000, 8_000, 100, True, "") for i in range(2)
        )
        inventories = [Inventory("gpushare", "", shared)]
    return build.node(
        name,
        0,
        uid=uid,
        inventories=tuple(inventories),
        pods=dice.choice((3, 20)),
        cpu_milli=dice.choice((300, 8_000)),
        extended=(("nvidia.com/gpu", 2),) if dice.random() < 0.3 else (),
    )


def a_pod(dice: random.Random, uid: str, created_ms: int) -> PodObserved:
    kind = dice.random()
    devices: tuple[DeviceRequest, ...] = ()
    extended: tuple[tuple[str, int], ...] = ()
    if kind < 0.7:
        memory_pct = dice.choice((0, 0, 0, 25, 100))
        memory_mib = 0 if memory_pct else dice.choice((1_000, 4_000, 8_000, 12_000, 64_000))
        cores_pct = dice.choice((0, 25, 50, 100))
        devices = (
            build.wants(memory_mib, cores_pct, dice.choice((1, 1, 2)), memory_pct=memory_pct),
        )
    elif kind < 0.8:
        devices = (build.wants(dice.choice((2_000, 5_000)), 0, family="gpushare"),)
    elif kind < 0.9:
        devices = (build.wants(0, 100, dice.choice((1, 2)), memory_pct=100, family="gpushare"),)
    else:
        extended = (("nvidia.com/gpu", dice.choice((0, 1, 2))),)
    selection = Selection(indexes=(0,)) if devices and dice.random() < 0.1 else Selection()
    return build.pod(
        uid,
        build.request(
            *devices,
            extended=extended,
            selection=selection,
            cpu_milli=dice.choice((0, 100, 200)),
        ),
        priority=dice.choice((0, 0, 10)),
        created_ms=created_ms,
        scheduler="other" if dice.random() < 0.1 else "allotment",
    )


def _node_appears(world: "World") -> None:
    number = world.next_id()
    name = f"n{number}"
    world.api.put_node(a_node(world.dice, name, f"uid-{number}"))


def _pod_appears(world: "World") -> None:
    if len(world.api.pods) < PODS_MAX:
        world.api.put_pod(a_pod(world.dice, f"p{world.next_id()}", world.now_ms))


def _some_pod(world: "World", *, bound: bool) -> PodObserved | None:
    pods = [p for p in world.api.pods.values() if bool(p.node) == bound and p.phase == "Pending"]
    return world.dice.choice(pods) if pods else None


def _pod_deleted(world: "World") -> None:
    if world.api.pods:
        uid = world.dice.choice(list(world.api.pods))
        world.say(f"api: {uid} is deleted")
        world.api.delete_pod(uid)


def _pod_ends(world: "World") -> None:
    pod = _some_pod(world, bound=True)
    if pod is not None and not world.kubelets.is_waiting(pod.uid):
        world.say(f"api: {pod.uid} ends")
        world.api.put_pod(msgspec.structs.replace(pod, phase="Succeeded"))


def _node_changes(world: "World") -> None:
    if not world.api.nodes:
        return
    fact = world.dice.choice(list(world.api.nodes.values()))
    changes: dict[str, object] = {"unschedulable": world.dice.random() < 0.5}
    if world.dice.random() < 0.5:
        changes = {"ready": world.dice.random() < 0.7}
    world.say(f"api: {fact.name} becomes {changes}")
    world.api.put_node(msgspec.structs.replace(fact, **changes))


def _node_shrinks(world: "World") -> None:
    """Memory or a whole card is lost, under whoever holds it."""
    if not world.api.nodes:
        return
    fact = world.dice.choice(list(world.api.nodes.values()))
    inventories = []
    for inventory in fact.inventories:
        for card in inventory.cards:
            world.api.excused.add((fact.name, card.id))
        cards = [
            msgspec.structs.replace(card, memory_mib=card.memory_mib // 2)
            for card in inventory.cards[: world.dice.randint(1, len(inventory.cards))]
        ]
        inventories.append(msgspec.structs.replace(inventory, cards=tuple(cards)))
    world.say(f"api: {fact.name} shrinks")
    world.api.put_node(msgspec.structs.replace(fact, inventories=tuple(inventories)))


def _node_flaps(world: "World") -> None:
    """A node goes, or one that went comes back under its name, with a new uid."""
    gone = world.gone_nodes
    if gone and (world.dice.random() < 0.6 or not world.api.nodes):
        fact = gone.pop()
        uid = f"uid-{world.next_id()}" if world.dice.random() < 0.5 else fact.uid
        world.api.put_node(msgspec.structs.replace(fact, uid=uid))
    elif world.api.nodes:
        fact = world.dice.choice(list(world.api.nodes.values()))
        world.api.delete_node(fact.name)
        gone.append(fact)
    elif len(world.api.nodes) < NODES_MAX:
        _node_appears(world)


def _policy_changes(world: "World") -> None:
    world.policy = a_policy(world.dice)


def _stranger_binds(world: "World") -> None:
    """Another scheduler binds a pod, ours or not, onto cards that it thinks are free."""
    pod = _some_pod(world, bound=False)
    if pod is None or not world.api.nodes:
        return
    node = world.dice.choice(list(world.api.nodes.values()))
    holdings: tuple[Holding, ...] = ()
    for inventory in node.inventories:
        wanted = [d for d in pod.request.devices if d.family == inventory.family]
        cards = world.dice.sample(inventory.cards, min(1, len(inventory.cards)))
        holdings += tuple(
            Holding(
                d.family,
                d.container,
                card.id,
                card.memory_mib * d.memory_pct // 100 if d.memory_pct else d.memory_mib,
                d.cores_pct,
            )
            for d in wanted
            for card in cards
        )
    world.api.excused.update((node.name, held.card) for held in holdings)
    answer = world.api.bind(pod.uid, node.name, as_annotated(holdings))
    if answer == "ok":
        world.api.strangers.add(pod.uid)
    world.say(f"stranger: binds {pod.uid} to {node.name}: {answer}")


def _owner_edits(world: "World") -> None:
    """The owner of a bound pod claims less, another card, all cards, nothing, or garbage.

    What others bound and the log has not seen yet is left alone: there is nothing but its
    annotations to know it by.
    """
    pod = _some_pod(world, bound=True)
    node = None if pod is None else world.api.nodes.get(pod.node)
    if pod is None or node is None or not world.api.given[pod.uid]:
        return
    known = world.auditor.follower.state.pods.get(pod.uid)
    held = None if known is None else known.allocation
    if pod.uid in world.api.strangers and (held is None or held.seq):
        return
    if pod.broken is not None and (known is None or known.fact.rv < pod.rv):
        return
    if known is not None and known.allocation is not None and known.allocation.broken:
        world.say(f"owner: mends {pod.uid}")  # what it claims first is believed
        world.api.edit(pod.uid, world.api.given[pod.uid])
        return
    dice, given = world.dice, world.api.given[pod.uid]
    cards = [
        Holding(inventory.family, 0, card.id, card.memory_mib, 100)
        for inventory in node.inventories
        for card in inventory.cards
    ]
    claims = (
        (
            (),
            tuple(msgspec.structs.replace(held, memory_mib=1, cores_pct=0) for held in given),
            tuple(msgspec.structs.replace(held, card=dice.choice(cards).card) for held in given),
            tuple(cards),
            given,
        )
        if cards
        else ((),)
    )
    broken = GARBAGE if dice.random() < 0.2 else None
    world.say(f"owner: edits {pod.uid}")
    world.api.edit(pod.uid, dice.choice(claims), broken)


def _intruder_appears(world: "World") -> None:
    """A pod without any device in its limits is made on a node and claims all of its cards."""
    if not world.api.nodes:
        return
    node = world.dice.choice(list(world.api.nodes.values()))
    uid = f"intruder-{world.next_id()}"
    world.api.put_pod(build.pod(uid, build.request(), scheduler="other"))
    world.api.bind(uid, node.name, ())
    world.api.edit(
        uid,
        tuple(
            Holding(inventory.family, 0, card.id, card.memory_mib, 100)
            for inventory in node.inventories
            for card in inventory.cards
        ),
    )
    world.say(f"intruder: {uid} claims all cards of {node.name}")


def _unreadable_pod_appears(world: "World") -> None:
    """Another scheduler's pod asks for a card, and nobody can read which one it got, or not even
    what it asks for."""
    if not world.api.nodes:
        return
    dice = world.dice
    node = dice.choice(list(world.api.nodes.values()))
    uid = f"unreadable-{world.next_id()}"
    memory_pct = dice.choice((0, 0, 25))
    ask = build.wants(0 if memory_pct else 1_000, 0, dice.choice((1, 2)), memory_pct=memory_pct)
    cards = [c for i in node.inventories if i.family == ask.family for c in i.cards]
    given = tuple(
        Holding(
            ask.family,
            ask.container,
            card.id,
            card.memory_mib * memory_pct // 100 if memory_pct else ask.memory_mib,
            ask.cores_pct,
        )
        for card in dice.sample(cards, min(ask.count, len(cards)))
    )
    world.api.excused.update((node.name, held.card) for held in given)
    world.api.put_pod(build.pod(uid, build.request(ask), scheduler="other"))
    world.api.bind(uid, node.name, given)
    world.api.edit(uid, (), dice.choice((GARBAGE, GARBAGE, UNREADABLE)))
    world.say(f"stranger: binds {uid} to {node.name} with {given}, unreadably")


def _card_flaps(world: "World") -> None:
    """A card falls ill, or recovers."""
    if not world.api.nodes:
        return
    fact = world.dice.choice(list(world.api.nodes.values()))
    inventories = tuple(
        msgspec.structs.replace(
            inventory,
            cards=tuple(
                msgspec.structs.replace(card, healthy=not card.healthy or world.dice.random() < 0.3)
                for card in inventory.cards
            ),
        )
        for inventory in fact.inventories
    )
    world.say(f"api: cards of {fact.name} fall ill or recover")
    world.api.put_node(msgspec.structs.replace(fact, inventories=inventories))


def _deleted_in_the_line(world: "World") -> None:
    """By force, while its kubelet has not come to it: it is admitted all the same."""
    waiting = [uid for uid in world.api.records if world.kubelets.is_waiting(uid)]
    if waiting:
        uid = world.dice.choice(waiting)
        world.say(f"api: {uid} is deleted by force in the line")
        world.api.delete_pod(uid)


def _plugin_restarts(world: "World") -> None:
    if world.api.nodes:
        node = world.dice.choice(sorted(world.api.nodes))
        world.say(f"plugin: that of {node} restarts")
        world.kubelets.restart_plugin(node)


def _watch_breaks(world: "World") -> None:
    if world.api.nodes:
        node = world.dice.choice(sorted(world.api.nodes))
        world.say(f"kubelet: that of {node} loses its watch")
        world.kubelets.lose_watch(node)
