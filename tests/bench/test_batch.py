"""The workload of `allot bench batch`, and that a cycle costs what changed and not what runs."""

import msgspec
import pytest
from click.testing import CliRunner

from allotment.core.ledger.check import check
from allotment_board.board import Board
from allotment_cli.main import main
from allotment_lab.bench.batch import TOO_MANY, Readers, in_vain, turn_over
from allotment_lab.bench.worlds.groups import Crowd, CrowdError


def settled(groups: int, pending: int) -> tuple[Crowd, Readers]:
    """Everything was looked at once, and nobody is due."""
    crowd = Crowd(nodes=groups // 8 + 1, queues=3, groups=groups, size=2)
    readers = Readers(crowd.state, Board(crowd.state))
    crowd.arrive(pending, TOO_MANY)
    readers.settle(crowd)
    turn_over(crowd, readers)
    return crowd, readers


def work(groups: int, pending: int) -> tuple[int, int, int]:
    """What five cycles cost in which one group ends and another comes: views made, groups sorted
    into the lines of those who wait, and groups looked at there.
    """
    crowd, readers = settled(groups, pending)
    lines = readers.groups.lines
    before = readers.opened, lines.sorted_in, lines.visited
    for _ in range(5):
        turn_over(crowd, readers)
    after = readers.opened, lines.sorted_in, lines.visited
    assert check(crowd.state) == []
    return after[0] - before[0], after[1] - before[1], after[2] - before[2]


def test_what_merely_runs_costs_nothing() -> None:
    assert work(groups=160, pending=4) == work(groups=20, pending=4)
    made, sorted_in, _ = work(groups=20, pending=0)
    assert made == 5 * 2 * 3, (
        "the group that was placed last, one that ends, one that comes; by two"
    )
    assert sorted_in == 5


def test_groups_that_wait_in_vain_are_not_opened_again() -> None:
    assert work(groups=20, pending=16)[:2] == work(groups=20, pending=0)[:2]


def test_who_waits_in_vain_is_not_looked_at_when_another_comes() -> None:
    crowd, readers = settled(20, 16)
    assert readers.cycle(crowd) is None, "all were tried"
    before = readers.opened, readers.groups.lines.visited
    (key,) = crowd.arrive(1)
    assert readers.cycle(crowd) is not None
    assert crowd.state.groups[key].short is None
    made, visited = readers.opened - before[0], readers.groups.lines.visited - before[1]
    assert made == 3, "the one that came, and by the scorer the one that was placed before"
    assert visited == 2, "it is due, and it is taken"


def test_a_gang_that_can_never_fit_is_told_in_its_first_cycle() -> None:
    crowd, readers = settled(20, 16)
    assert in_vain(crowd, readers) > 0


def test_a_cluster_too_small_for_its_groups_is_refused() -> None:
    with pytest.raises(CrowdError, match="1 nodes hold 20 groups of 2 pods, not 21"):
        Crowd(nodes=1, queues=1, groups=21, size=2)


def test_it_reports_one_line_of_json() -> None:
    small = ["--nodes", "5", "--groups", "20", "--pending", "3", "--queues", "2", "--cycles", "5"]
    result = CliRunner().invoke(main, ["bench", "batch", *small, "--json"])
    assert result.exit_code == 0, result.output
    facts = msgspec.json.decode(result.stdout)
    assert facts["bench"] == "batch"
    assert (facts["parameters"]["groups"], facts["parameters"]["pending"]) == (20, 3)
    assert facts["rate_per_cpu_second"] > 0
    assert 0 < facts["p50_us"] <= facts["p99_us"]
    assert facts["cpu_us"].keys() == {"filter", "scorer", "fold"}
    assert facts["opened"] == 6
