"""What pods of one namespace cost the decisions about others: counts of work, not time."""

from collections.abc import Iterable

import msgspec
import pytest

from allotment.adapters.telemetry.metrics import ROWS_MAX, ServiceMetrics
from allotment.core.ledger.model import ClusterState
from allotment.core.ledger.state import apply
from allotment.core.metrics.cards import Gauge
from allotment.core.metrics.queues import queue_gauges
from allotment.core.placement import unserved
from allotment.core.placement.cycle import place
from allotment.core.placement.rules import interpod
from allotment.core.queues.round.rounds import Rounds
from allotment_board.board import Board
from allotment_filter.batches import next_round
from allotment_filter.effort import EFFORT_MAX, Effort
from allotment_filter.feasibility import FeasibilityCache
from allotment_filter.groups import Groups
from allotment_filter.waiting import Waiting
from allotment_proto.events import (
    Event,
    GroupObserved,
    NodeObserved,
    PodObserved,
    QueueObserved,
    TimePassed,
)
from allotment_proto.facts import (
    Company,
    Constraints,
    Expression,
    NodeTerm,
    PodPreference,
    PodRequest,
    PodTerm,
    Spread,
)
from tests import build

NODES = 20
OTHERS = 400


def node(number: int) -> NodeObserved:
    name = f"n{number}"
    return build.node(name, 0, pods=500, labels=(("kubernetes.io/hostname", name),))


def cluster(*more: Event) -> ClusterState:
    """Nodes full of other tenants' pods."""
    running = [
        build.pod(f"r{n}", PodRequest(1), namespace="tb", node=f"n{n % NODES}", phase="Running")
        for n in range(OTHERS)
    ]
    policy = build.policy(namespace_turns=True)
    return build.state_of(policy, *map(node, range(NODES)), *running, *more)


def terms(key: str, number: int, *namespaces: str) -> tuple[PodTerm, ...]:
    return tuple(
        PodTerm(key.format(n), namespaces, (Expression("app", "In", (f"a{n}",)),))
        for n in range(number)
    )


class Asked:
    """Counts how many pods are asked a question about themselves."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.pods = 0
        for kind in (interpod.Meets, interpod.MeetsAny, interpod.Stays, interpod.Earns):
            monkeypatch.setattr(kind, "count", self._counting(kind.count))

    def _counting(self, count: object) -> object:
        def counted(question: object, pod: PodObserved) -> int:
            self.pods += 1
            return count(question, pod)  # type: ignore[operator,no-any-return]

        return counted


MADE_UP = Company(
    away=terms("made-up-{}.io/zone", 31),
    preferred=tuple(PodPreference(1, term) for term in terms("other-{}.io/zone", 31)),
)
OWN = Company(
    away=terms("kubernetes.io/hostname", 8, "ta"),
    spread=tuple(
        Spread(term, 5, is_required=True, counts_self=False)
        for term in terms("kubernetes.io/hostname", 8, "ta")
    ),
)


@pytest.mark.parametrize("company", [MADE_UP, OWN])
def test_rules_that_concern_nobody_look_at_no_pod(
    company: Company, monkeypatch: pytest.MonkeyPatch
) -> None:
    """About labels that no node has, or about pods of a namespace that has none."""
    state = cluster()
    asked = Asked(monkeypatch)
    board = Board(state)
    board.begin()
    found = place(build.pod("a", PodRequest(1, company=company), namespace="ta"), board)
    assert getattr(found, "node", ""), "it is placed"
    assert asked.pods == 0


def test_labels_that_are_made_up_are_not_remembered() -> None:
    state = cluster()
    board = Board(state)
    for number in range(50):
        company = Company(away=terms(f"made-up-{number}-{{}}.io/zone", 31))
        board.begin()
        place(build.pod(f"a{number}", PodRequest(1, company=company)), board)
        board.end()
    assert len(board._columns.crowd._domains) == 0


def test_a_label_counts_as_soon_as_a_node_has_it() -> None:
    state = cluster()
    board = Board(state)
    company = Company(away=(PodTerm("example.com/rack", (), ()),))
    fact = build.pod("a", PodRequest(1, company=company), namespace="ta")
    board.begin()
    assert getattr(place(fact, board), "node", "")
    board.end()
    labels = (("example.com/rack", "r1"),)
    for number in range(NODES):
        changed = build.node(f"n{number}", 0, pods=500, labels=labels, rv=2)
        apply(state, changed, state.seq + 1)
    board.begin()
    assert not getattr(place(fact, board), "node", ""), "somebody is in the only rack"


def test_resources_that_no_node_offers_are_no_series() -> None:
    asks = PodRequest(1, extended=tuple((f"made-up-{n}.io/y", 1) for n in range(100)))
    real = PodRequest(1, extended=(("example.com/fpga", 1),))
    offers = build.node("f", 0, extended=(("example.com/fpga", 4),))
    queue = QueueObserved(uid="q", name="default", rv=1, capability=(("example.com/tpu", 2),))
    pods = [build.pod(f"w{n}", asks, queue="default") for n in range(5)]
    state = cluster(offers, queue, *pods, build.pod("real", real, queue="default"))
    gauges = queue_gauges(Rounds(state).session())
    names = {row[1] for gauge in gauges if gauge.labels[1:] for row in gauge.rows}
    assert names <= {"example.com/fpga", "example.com/tpu"}
    assert "example.com/fpga" in names


def test_a_refusal_names_a_few_of_many_resources(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[str] = []
    nearest = unserved.nearest

    def counting(name: str, names: set[str]) -> str:
        compared.append(name)
        return nearest(name, names)

    monkeypatch.setattr(unserved, "nearest", counting)
    asks = PodRequest(1, extended=tuple((f"made-up-{n}.io/y", 1) for n in range(32)))
    texts = unserved.unserved(cluster(), asks)
    assert len(texts) == 5
    assert texts[0] == "no node offers made-up-0.io/y"
    assert texts[-1] == "no node offers 28 more of its resources"
    assert len(set(compared)) == 4


def batches(pods: Iterable[PodObserved]) -> list[list[str]]:
    """The batches in which pods are offered, until nobody is due."""
    state = cluster(QueueObserved(uid="q", name="default", rv=1), *pods)
    groups, found = Groups(state), []
    while (batch := groups.next_batch({})) is not None:
        found.append(list(batch.batch.uids))
        groups.tried(batch)
    return found


def waiting(uid: str, request: PodRequest, namespace: str) -> PodObserved:
    return build.pod(uid, request, namespace=namespace, queue="default", created_ms=len(uid))


@pytest.mark.parametrize(
    "request_of",
    [
        lambda n: PodRequest(1, company=Company(away=terms(f"k{n}-{{}}", 31))),
        lambda n: PodRequest(
            1,
            constraints=Constraints(
                affinity=tuple(NodeTerm((Expression("x", "In", (f"{n}-{t}",)),)) for t in range(62))
            ),
        ),
    ],
)
def test_costly_pods_come_in_small_batches(request_of: object) -> None:
    hostile = [waiting(f"h{n}", request_of(n), "ta") for n in range(60)]  # type: ignore[operator]
    found = batches([*hostile, *(waiting(f"probe{n}", PodRequest(1), "tb") for n in range(3))])
    assert max(map(len, found)) <= EFFORT_MAX // 31 + 3
    assert sum(map(len, found)) == 63
    assert set(found[0]) >= {"probe0", "probe1", "probe2"}


class Busy:
    """A cluster in which something happens all the time: whoever was refused is due again."""

    def __init__(self, *, queues: bool, turns: bool, pods: Iterable[PodObserved]) -> None:
        queue = (QueueObserved(uid="q", name="default", rv=1),) if queues else ()
        self._state = cluster(build.policy(namespace_turns=turns), *queue, *pods)
        self._effort, self._groups = Effort(), Groups(self._state) if queues else None
        self._feasibility = FeasibilityCache(self._state, Board(self._state))
        self._waiting = Waiting(self._state)

    def tell(self, event: Event) -> None:
        apply(self._state, event, self._state.seq + 1)

    def batch(self) -> set[str]:
        if self._groups is None:
            found = next_round(
                *(self._feasibility, {}, {}, 256, self._waiting), effort=self._effort
            )
            self._waiting.offered(found.batch.uids)
            return set(found.batch.uids)
        made = self._groups.next_batch({})
        self.tell(TimePassed(at_ms=self._state.time_ms + 1))
        if made is None:
            return set()
        self._groups.tried(made)
        return set(made.batch.uids)


NO_ROOM = 1_000_000
ABOUT_OTHERS = Company(away=terms("kubernetes.io/hostname", 32))
COSTLY = PodRequest(NO_ROOM, company=ABOUT_OTHERS)


@pytest.mark.parametrize("turns", [False, True])
@pytest.mark.parametrize("queues", [False, True])
class TestNobodyWaitsBehindCostlyPods:
    def busy(self, queues: bool, turns: bool, *pods: PodObserved) -> Busy:
        hostile = [waiting(f"h{n}", COSTLY, "ta") for n in range(9)]
        queue = "default" if queues else ""
        every = [msgspec.structs.replace(each, queue=queue) for each in (*hostile, *pods)]
        return Busy(queues=queues, turns=turns, pods=every)

    def test_a_plain_pod_comes_at_once(self, queues: bool, turns: bool) -> None:
        busy = self.busy(queues, turns, waiting("plain-pod", PodRequest(1), "tb"))
        assert "plain-pod" in busy.batch()

    def test_a_pod_with_a_rule_comes_with_the_next_batch(self, queues: bool, turns: bool) -> None:
        rule = PodRequest(1, company=Company(away=terms("kubernetes.io/hostname", 1)))
        busy = self.busy(queues, turns, waiting("with-a-rule", rule, "tb"))
        assert "with-a-rule" in busy.batch() | busy.batch()

    def test_the_last_costly_one_has_its_turn(self, queues: bool, turns: bool) -> None:
        busy = self.busy(queues, turns)
        batches = [busy.batch() for _ in range(6)]
        assert all(len(each) <= EFFORT_MAX // 32 for each in batches)
        for number in range(9):
            assert sum(f"h{number}" in each for each in batches) >= 2, number


@pytest.mark.parametrize("turns", [False, True])
def test_a_costly_gang_has_its_turn(turns: bool) -> None:
    hostile = [waiting(f"h{n}", COSTLY, "ta") for n in range(9)]
    busy = Busy(queues=True, turns=turns, pods=hostile)
    busy.tell(
        GroupObserved(uid="g", namespace="tb", name="g", rv=1, min_member=20, phase="Inqueue")
    )
    rule = PodRequest(1, company=Company(away=terms("kubernetes.io/hostname", 20)))
    for number in range(20):
        busy.tell(build.pod(f"gang-{number}", rule, namespace="tb", group="tb/g"))
    assert "gang-0" in busy.batch() | busy.batch()


def test_pods_alike_and_single_costly_ones_are_not_held_up() -> None:
    term = tuple(NodeTerm((Expression("x", "In", (f"{t}",)),)) for t in range(62))
    alike = PodRequest(1, constraints=Constraints(affinity=term))
    assert list(map(len, batches(waiting(f"p{n}", alike, "ta") for n in range(100)))) == [100]
    huge = PodRequest(1, company=Company(away=terms("k{}", EFFORT_MAX + 1)))
    assert sum(map(len, batches([waiting("huge", huge, "ta"), waiting("p", huge, "ta")]))) == 2


def test_a_metric_has_so_many_rows_and_says_how_many_it_lacks() -> None:
    metrics = ServiceMetrics("test")
    rows: dict[tuple[str, ...], int] = {}
    metrics.expose("allot_made_up", "of tenants", lambda: rows, ("name",))
    gauge = Gauge("allot_more_made_up", "of tenants", ("name",), rows)
    metrics.expose_gauges(lambda: [gauge], [gauge._replace(rows={})])
    for number in range(ROWS_MAX + 7):
        rows[(f"n{number}",)] = 1
    for _ in range(2):  # what is left out is known once it was written
        page = metrics.encode("")[0].decode()
    for name in ("allot_made_up", "allot_more_made_up"):
        assert page.count(f"\n{name}{{") == ROWS_MAX
        assert f'allot_metrics_rows_left_out{{metric="{name}"}} 7.0' in page
    rows.clear()
    metrics.encode("")
    assert "allot_metrics_rows_left_out{" not in metrics.encode("")[0].decode()
