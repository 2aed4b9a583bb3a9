"""`allot bench full`: what an end costs does not follow from how many wait."""

from random import Random
from statistics import median
from typing import Any
from unittest.mock import patch

import msgspec
import pytest
from click.testing import CliRunner

from allotment.core.ledger.check import check
from allotment_board.board import Board
from allotment_cli.main import main
from allotment_filter.feasibility import FeasibilityCache
from allotment_filter.parked import Parked
from allotment_lab.bench.full import FILL, Services
from allotment_lab.bench.policies import policy_of
from allotment_lab.bench.worlds.churn import Churn, shapes

SMALL = ["--nodes", "5", "--waiting", "60", "--shapes", "4", "--ends", "20"]


def waiting_for_room(
    waiting: int, *, parks: bool, kinds: int = 4, queues: int = 10
) -> tuple[Churn, Services]:
    """A full cluster on which so many pods wait and none is due."""
    random = Random(3)
    wanted = shapes(kinds, random)
    churn = Churn(5, wanted, random, policy_of("binpack"), queues=queues, misfits=1, fill=FILL)
    services = Services(churn, Board(churn.state), parks=parks)
    while len(churn.state.pending) < waiting:
        churn.arrive(waiting - len(churn.state.pending))
        services.until_nothing_is_due()
    services.after_an_end()
    return churn, services


def tried(waiting: int, **plan: Any) -> int:
    """Pods in the cycles that follow when forty pods end, one after the other."""
    churn, services = waiting_for_room(waiting, **plan)
    found = sum(services.after_an_end().tried for _ in range(40))
    assert check(churn.state) == []
    return found


def test_who_waits_in_vain_is_not_tried_again() -> None:
    assert tried(200, parks=False) > 40 * 150
    assert tried(200, parks=True) < 40 * 3


def test_pods_of_many_kinds_in_many_queues_are_not_tried_again() -> None:
    assert tried(900, parks=True, kinds=8, queues=40) < 40 * 50


@pytest.mark.parametrize("waiting", [300, 3_000])
def test_what_an_end_costs_does_not_grow_with_those_who_wait(waiting: int) -> None:
    """Of the ends the median: at some the counted reasons of a kind of pods change, and all of that
    kind are tried once.
    """
    _, services = waiting_for_room(waiting, parks=True)
    with (
        patch.object(Parked, "_class_of", autospec=True, side_effect=Parked._class_of) as checks,
        patch.object(
            FeasibilityCache, "of", autospec=True, side_effect=FeasibilityCache.of
        ) as asked,
    ):
        tries = [services.after_an_end().tried for _ in range(40)]
    assert median(tries) == 1, tries
    assert checks.call_count <= 40 * 4, "of some hundred classes"
    assert asked.call_count <= 40 * 12, "eight different requests"


@pytest.mark.slow
def test_it_reports_one_line_of_json() -> None:
    result = CliRunner().invoke(main, ["bench", "full", *SMALL, "--json"])
    assert result.exit_code == 0, result.output
    facts = msgspec.json.decode(result.stdout)
    assert facts["bench"] == "full"
    assert (facts["parameters"]["waiting"], facts["parameters"]["ends"]) == (60, 20)
    assert facts["placed_per_end"] > 0
    assert facts["tried_per_end"] >= facts["placed_per_end"]
    assert 0 < facts["p50_us"] <= facts["p99_us"]
    assert facts["cpu_us"].keys() == {"filter", "scorer", "fold"}


def test_it_refuses_to_measure_rejections() -> None:
    tiny = ["--nodes", "2", "--waiting", "20", "--shapes", "1", "--ends", "1", "--seed", "14"]
    result = CliRunner().invoke(main, ["bench", "full", *tiny])
    assert result.exit_code == 2
    assert "would measure rejections" in result.stderr
