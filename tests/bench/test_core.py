"""The bench's workload is the same for a seed, keeps the books, and reports what it measured."""

from random import Random

import msgspec
import pytest
from click.testing import CliRunner

from allotment.core.ledger import snapshot
from allotment.core.ledger.check import check
from allotment.core.placement.evaluator import Evaluator
from allotment.core.queues.round.views import Views
from allotment_board.board import Board
from allotment_cli.main import main
from allotment_lab.bench.worlds.churn import DEFAULT_QUEUE, DEVICES, FILL, Churn, shapes
from allotment_proto.facts import Policy


def churn(seed: int = 1) -> Churn:
    random = Random(seed)
    return Churn(5, shapes(8, random), random, Policy())


def test_it_is_filled_and_balanced() -> None:
    state = churn().state
    cards = [card for node in state.nodes.values() for card in node.ledgers["vgpu"].cards]
    used, size = sum(c.used_memory_mib for c in cards), sum(c.fact.memory_mib for c in cards)
    assert FILL * size <= used
    assert not any(card.oversold for card in cards)
    assert check(state) == []


def test_the_same_seed_ends_in_the_same_state_whoever_ranks() -> None:
    fast, slow = churn(), churn()
    board, evaluator = fast.decider(Board(fast.state)), slow.decider(Evaluator(slow.state))
    placed = [(fast.step(board), slow.step(evaluator)) for _ in range(300)]
    assert all(a == b for a, b in placed)
    assert snapshot.encode(fast.state) == snapshot.encode(slow.state)
    assert check(fast.state) == []


def test_with_queues_pods_are_lone_pods_of_them_as_the_watcher_tells_them() -> None:
    random = Random(1)
    found = Churn(5, shapes(8, random), random, Policy(), queues=3)
    decide = found.decider(Board(found.state))
    assert sum(found.step(decide) for _ in range(20)) > 0
    views = Views(found.state)
    views.follow()
    assert {pod.fact.queue for pod in found.state.pods.values()} == {DEFAULT_QUEUE, "q1", "q2"}
    assert all(job.is_single for job in views.jobs.values())


def test_core_reports_one_line_of_json() -> None:
    arguments = ["bench", "core", "--nodes", "20", "--shapes", "4", "--seconds", "0.1", "--json"]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0, result.output
    facts = msgspec.json.decode(result.stdout)
    assert facts["bench"] == "core"
    assert (facts["parameters"]["nodes"], facts["parameters"]["shapes"]) == (20, 4)
    assert facts["rate_per_cpu_second"] > 0
    assert facts["plain_rate_per_cpu_second"] > 0
    assert facts["ratio_to_plain"] > 0
    assert facts["p50_us"] <= facts["p99_us"]


@pytest.mark.parametrize("devices", DEVICES)
def test_every_kind_of_cards_can_be_measured(devices: str) -> None:
    arguments = ["bench", "core", "--nodes", "12", "--shapes", "4", "--seconds", "0.1", "--json"]
    result = CliRunner().invoke(main, [*arguments, "--devices", devices])
    assert result.exit_code == 0, result.output
    facts = msgspec.json.decode(result.stdout)
    assert facts["parameters"]["devices"] == devices
    assert facts["placed_percent"] > 50


@pytest.mark.parametrize("devices", DEVICES)
@pytest.mark.parametrize("count", [1, 16, 25, 512])
def test_there_are_as_many_shapes_as_asked_for(devices: str, count: int) -> None:
    assert len(set(shapes(count, Random(1), devices=devices))) == count
