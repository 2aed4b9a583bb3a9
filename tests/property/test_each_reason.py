"""For each reason with which a node refuses: clusters in which just that one decides.

Some nodes take the request, the others differ from them in one thing only, and refuse it for the
one reason of this thing. The plain rules and the board must say so, node by node and in sum.
"""

from collections.abc import Callable
from random import Random
from typing import Any

import msgspec
import pytest

from allotment.core import reasons
from allotment.core.ledger.model import FORGED_MOST
from allotment.core.placement.evaluator import Evaluator
from allotment.core.placement.rules.bounds import Bound, Bounds, Excluded, bounded
from allotment.core.placement.rules.interpod import look_around
from allotment.core.placement.rules.predicates import HOST_CHECKS, Question
from allotment.core.placement.rules.switches import ALL
from allotment_board.board import Board
from allotment_proto.events import Event, NodeObserved
from allotment_proto.facts import (
    Attachment,
    Company,
    Constraints,
    Expression,
    HostPort,
    Inventory,
    NodeTerm,
    PodRequest,
    PodSubject,
    PodTerm,
    Problem,
    Selection,
    Spread,
    Taint,
)
from tests import build
from tests import strategies as own

pytestmark = pytest.mark.usefixtures("scoring")

SEEDS = range(6)
WEB = (("app", "web"),)
IS_WEB = (Expression("app", "In", ("web",)),)
PORT = HostPort("TCP", "0.0.0.0", 80)


class Scene:
    """Nodes that take a request, and nodes that will not."""

    def __init__(self, random: Random) -> None:
        names = [f"n{number}" for number in range(random.randint(3, 9))]
        random.shuffle(names)
        at = random.randint(1, len(names) - 2)
        self.good, self.bad = names[:at], names[at:]
        self.request = build.request(build.wants(random.randint(1, 4_000), 25))
        self.then: list[Event] = []
        self.nodes: dict[str, NodeObserved] = {}
        for name in names:
            cards = random.randint(2, 4)
            facts = [build.card(index, id=f"{name}-{index}") for index in range(cards)]
            labels = (("host", name), ("zone", "good" if name in self.good else "bad"))
            cpu_milli = random.choice((8_000, 16_000))
            self.nodes[name] = build.node(name, facts, labels=labels, cpu_milli=cpu_milli)

    def asks(self, **changes: Any) -> None:
        self.request = msgspec.structs.replace(self.request, **changes)

    def are(self, names: list[str], **changes: Any) -> None:
        for name in names:
            self.nodes[name] = msgspec.structs.replace(self.nodes[name], **changes)

    def cards(self, names: list[str], mode: str = "hami-core", **changes: Any) -> None:
        tables = (own.MIG_TABLE,) if mode == "mig" else ()
        for name in names:
            (inventory,) = self.nodes[name].inventories
            cards = tuple(msgspec.structs.replace(card, **changes) for card in inventory.cards)
            self.are([name], inventories=(Inventory("vgpu", mode, cards, tables),))

    def run(self, names: list[str], request: PodRequest | None = None, **changes: Any) -> None:
        """A pod of others on each of these nodes."""
        for name in names:
            uid = f"on-{name}"
            asked = build.request(cpu_milli=0) if request is None else request
            values = {"scheduler": "other", "node": name, **changes}
            self.then.append(build.pod(uid, asked, **values))

    def hold(self, names: list[str], memory_mib: int, cores_pct: int, **changes: Any) -> None:
        """A pod of others holds so much of each card of these nodes."""
        for name in names:
            cards = self.nodes[name].inventories[0].cards
            held = tuple(build.holding(card.id, memory_mib, cores_pct) for card in cards)
            asked = build.request(build.wants(memory_mib, cores_pct, len(cards)), cpu_milli=0)
            self.run([name], asked, holdings=held, **changes)

    def keep(self, **bounds: Any) -> None:
        self.request = bounded(self.request, Bounds(**bounds))

    def named(self, names: list[str]) -> NodeTerm:
        return NodeTerm((), (Expression("metadata.name", "In", tuple(sorted(names))),))


def near(key: str) -> PodTerm:
    return PodTerm(key, ("default",), IS_WEB)


def _failing_cards(s: Scene) -> None:
    places = [(name, "vgpu", c.id) for name in s.bad for c in s.nodes[name].inventories[0].cards]
    s.asks(selection=Selection(avoided=tuple(sorted(places))))


def _not_ready(s: Scene) -> None:
    s.are(s.bad, ready=False)


def _cordoned(s: Scene) -> None:
    s.are(s.bad, unschedulable=True)


def _tainted(s: Scene) -> None:
    s.are(s.bad, taints=(Taint("k", "v", "NoSchedule"),))


def _selector(s: Scene) -> None:
    s.asks(constraints=Constraints(node_selector=(("zone", "good"),)))


def _affinity(s: Scene) -> None:
    terms = (NodeTerm((Expression("zone", "In", ("good",)),)),)
    s.asks(constraints=Constraints(affinity=terms))


def _volume_elsewhere(s: Scene) -> None:
    s.asks(constraints=Constraints(volumes=((s.named(s.good),),)))


def _bound(code: str) -> Callable[[Scene], None]:
    return lambda s: s.keep(always=(Bound(code, (s.named(s.good),), "so it is"),))


def _excluded(code: str) -> Callable[[Scene], None]:
    return lambda s: s.keep(excluded=(Excluded(code, frozenset(s.bad), "so it is"),))


def _port(s: Scene) -> None:
    s.asks(company=Company(ports=(PORT,)))
    s.run(s.bad, build.request(cpu_milli=0, company=Company(ports=(PORT,))))


def _claim(s: Scene) -> None:
    """Wherever the pod is that has it: no node takes another."""
    used = Company(sole=("default/c",))
    s.asks(company=used)
    s.run(s.bad[:1], build.request(cpu_milli=0, company=used))
    s.good, s.bad = [], s.good + s.bad


def _near(s: Scene) -> None:
    s.asks(company=Company(near=(near("host"),)))
    s.run(s.good, labels=WEB)


def _away(s: Scene) -> None:
    s.asks(company=Company(away=(near("zone"),)))
    s.run(s.bad[:1], labels=WEB)


def _repelled(s: Scene) -> None:
    s.asks(company=Company(repelled=(PodSubject("host", "default", WEB),)))
    s.run(s.bad, build.request(cpu_milli=0, company=Company(away=(near("host"),))))


def _spread(s: Scene) -> None:
    s.asks(company=Company(spread=(Spread(near("zone"), 1, True, True),)))
    s.run(s.bad[:1], labels=WEB)


def _volumes(s: Scene) -> None:
    s.asks(attachments=(Attachment("d", "ns/c"),))
    s.are(s.bad, volume_limits=(("d", 0),))


def _taken_whole(s: Scene) -> None:
    names = list(s.nodes)
    s.are(names, extended=(("nvidia.com/gpu", 4),), listed_twice=(("nvidia.com/gpu", "vgpu"),))
    s.run(s.bad, build.request(cpu_milli=0, extended=(("nvidia.com/gpu", 1),)))


def _forged(s: Scene) -> None:
    for turn in range(FORGED_MOST + 1):
        s.run(s.bad, rv=2 * turn + 1, bind_phase="success")
        s.run(s.bad, rv=2 * turn + 2, bind_phase="allocating")


def _quarantined(s: Scene) -> None:
    s.run(s.bad, broken=Problem("BrokenAssignment", "annotation", "cannot be read"))


def _mode(s: Scene) -> None:
    s.asks(selection=Selection(mode="hami-core"))
    s.cards(s.bad, "mps")


def _too_few_cards(s: Scene) -> None:
    (wanted,) = s.request.devices
    s.asks(devices=(msgspec.structs.replace(wanted, count=2),))
    for name in s.bad:
        (inventory,) = s.nodes[name].inventories
        fewer = msgspec.structs.replace(inventory, cards=inventory.cards[:1])
        s.are([name], inventories=(fewer,))


def _not_selected(s: Scene) -> None:
    ids = [card.id for name in s.good for card in s.nodes[name].inventories[0].cards]
    s.asks(selection=Selection(use_ids=tuple(sorted(ids))))


def _model(s: Scene) -> None:
    s.asks(selection=Selection(use_types=("T4",)))
    s.cards(s.bad, model="NVIDIA-A100")


def _kept_apart(s: Scene) -> None:
    s.asks(apart=own.TAGS[:1])
    s.hold(s.bad, 1_000, 10, tags=own.TAGS[:1])


def _exclusive(s: Scene) -> None:
    s.asks(devices=(build.wants(1_000, 100),))
    s.hold(s.bad, 1_000, 0)


def _instance(s: Scene) -> None:
    """The cards have the memory, but no piece of theirs is as large."""
    s.asks(devices=(build.wants(15_950, 0),))
    s.cards(s.bad, "mig", table=0)


def _resource(s: Scene) -> None:
    s.asks(extended=(("example.com/x", 1),))
    s.are(s.good, extended=(("example.com/x", 1),))


def _busy(s: Scene) -> None:
    """Pods of ours have just been decided there, and their device plugins have not seen them."""
    s.asks(selection=Selection(backlog_below=1))
    for name in s.bad:
        uid, card = f"on-{name}", s.nodes[name].inventories[0].cards[0].id
        held = build.holding(card, 1, 1)
        s.then += [
            build.pod(uid, build.request(build.wants(1, 1))),
            build.decided(build.placement(uid, name, held)),
        ]


CASES: dict[str, Callable[[Scene], None]] = {
    reasons.NODE_NOT_READY: _not_ready,
    reasons.NODE_CORDONED: _cordoned,
    reasons.TAINT_NOT_TOLERATED: _tainted,
    reasons.SELECTOR_MISMATCH: _selector,
    reasons.AFFINITY_MISMATCH: _affinity,
    reasons.VOLUME_OUT_OF_REACH: _volume_elsewhere,
    reasons.NODE_GROUP: _bound(reasons.NODE_GROUP),
    reasons.CARD_WITHOUT_QUOTA: _bound(reasons.CARD_WITHOUT_QUOTA),
    reasons.NOT_NOMINATED: _bound(reasons.NOT_NOMINATED),
    reasons.HOST_PORT_TAKEN: _port,
    reasons.CLAIM_IN_USE: _claim,
    reasons.POD_AFFINITY_MISMATCH: _near,
    reasons.POD_ANTI_AFFINITY: _away,
    reasons.REPELLED_BY_POD: _repelled,
    reasons.SPREAD_MISMATCH: _spread,
    reasons.VOLUME_LIMIT_REACHED: _volumes,
    reasons.POD_LIMIT_REACHED: lambda s: s.are(s.bad, pods=0),
    reasons.INSUFFICIENT_CPU: lambda s: s.are(s.bad, cpu_milli=99),
    reasons.INSUFFICIENT_MEMORY: lambda s: s.are(s.bad, memory_bytes=build.GIB - 1),
    reasons.CARDS_IN_OTHER_USE: _taken_whole,
    reasons.NO_GPU: lambda s: s.are(s.bad, inventories=()),
    reasons.RECORD_FORGED: _forged,
    reasons.CARDS_QUARANTINED: _quarantined,
    reasons.GPU_MODE_MISMATCH: _mode,
    reasons.NOT_ENOUGH_GPUS_ON_NODE: _too_few_cards,
    reasons.GPU_NOT_SELECTED: _not_selected,
    reasons.CARD_FAILING: _failing_cards,
    reasons.GPU_MODEL_MISMATCH: _model,
    reasons.GPU_UNHEALTHY: lambda s: s.cards(s.bad, healthy=False),
    reasons.CARD_KEPT_APART: _kept_apart,
    reasons.SHARE_LIMIT_REACHED: lambda s: s.cards(s.bad, slots=0),
    reasons.EXCLUSIVE_CONFLICT: _exclusive,
    reasons.INSUFFICIENT_GPU_MEMORY: lambda s: s.hold(s.bad, 16_000, 0),
    reasons.NO_FITTING_INSTANCE: _instance,
    reasons.INSUFFICIENT_GPU_COMPUTE: lambda s: s.hold(s.bad, 0, 90),
    reasons.INSUFFICIENT_RESOURCE: _resource,
    reasons.HELD_FOR_GANG: _excluded(reasons.HELD_FOR_GANG),
    reasons.KEPT_FOR_PREEMPTOR: _excluded(reasons.KEPT_FOR_PREEMPTOR),
    reasons.NODE_FAILING: _excluded(reasons.NODE_FAILING),
    reasons.DEVICE_PLUGIN_BUSY: _busy,
}


def test_every_reason_of_a_node_has_its_clusters() -> None:
    assert CASES.keys() == reasons.STEP_NUMBER.keys()


def test_every_check_of_the_host_decides_somewhere() -> None:
    decisive = set()
    for code, case in CASES.items():
        scene = Scene(Random(0))
        case(scene)
        state = build.state_of(*scene.nodes.values(), *scene.then)
        around = look_around(list(state.nodes.values()), scene.request)
        for name in scene.bad:
            ask = Question(state.nodes[name], scene.request, ALL, around)
            answers = ((key, check(ask)) for key, check in HOST_CHECKS.items())
            first = next(((key, found) for key, found in answers if found), None)
            if first is not None:
                assert first[1] == code
                decisive.add(first[0])
    assert decisive == HOST_CHECKS.keys()


@pytest.mark.parametrize("code", CASES)
@pytest.mark.parametrize("seed", SEEDS)
def test_just_this_reason_decides(code: str, seed: int) -> None:
    scene = Scene(Random(seed))
    CASES[code](scene)
    state = build.state_of(*scene.nodes.values(), *scene.then)
    plain, board = Evaluator(state), Board(state)
    plain.begin()
    board.begin()
    verdicts, names = plain.verdicts(scene.request), [node and node.name for node in state.rows]
    found = {names[row]: v for row, v in verdicts.items() if isinstance(v, str)}
    assert found == dict.fromkeys(scene.bad, code)
    assert board.reasons(scene.request) == plain.reasons(scene.request) == ((code, len(found)),)
    assert board.rank(scene.request) == plain.rank(scene.request)
