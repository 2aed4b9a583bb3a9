"""What policies that keep room make of pods that come, wait and go: a workload of the examples."""

from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from allotment_cli.main import main

EXAMPLES = Path(__file__).parents[2] / "deploy" / "examples" / "simulate"


def allocated(workload: str, *policies: str) -> dict[str, float]:
    """Percent of all cards, by policy, of one and the same draw."""
    words = [word for name in policies for word in ("--policy", name)]
    file = str(EXAMPLES / f"{workload}.yaml")
    result = CliRunner().invoke(main, ["simulate", "--workload", file, *words, "--json"])
    assert result.exit_code == 0, result.output
    runs = [msgspec.json.decode(line) for line in result.stdout.splitlines()]
    return {run["policy"]: run["allocation_percent"] for run in runs}


@pytest.mark.parametrize("workload", ["equal-notebooks", "mixed-notebooks"])
def test_room_for_large_jobs_is_kept_if_sizes_are_weighed_by_cards(workload: str) -> None:
    """Counted by pods, jobs of four and eight cards are too few to be in the mix; they wait."""
    found = allocated(workload, "binpack", "headroom", "net-headroom")
    assert found["net-headroom"] >= found["headroom"] + 5
    assert found["net-headroom"] >= found["binpack"] - 2


def test_no_half_of_a_small_card_is_stranded() -> None:
    """Notebooks fill half of a T4 and inference most of it: there `net-headroom` is 7 points below
    best fit, and `fill-ahead` is not; where large jobs come it is better than both.
    """
    found = allocated("training-and-inference", "best-fit", "net-headroom", "fill-ahead")
    assert found["fill-ahead"] >= found["net-headroom"] + 3
    assert found["fill-ahead"] >= found["best-fit"] - 2
    found = allocated("mixed-notebooks", "binpack", "net-headroom", "fill-ahead")
    assert found["fill-ahead"] >= max(found.values()) - 0.5
