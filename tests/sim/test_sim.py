"""Many worlds keep all promises, and the planted bugs are caught.

More of both: `make sim SEEDS=2000`, `make mutants`. A seed that breaks is told, and
`python -m tests.sim.run --seed S --verbose` shows what happened.
"""

import pytest

from tests.sim.mutants import MUTANTS, Mutant, hunt
from tests.sim.planted import PLANTED, Planted, fits
from tests.sim.run import failing
from tests.sim.world import World


@pytest.mark.parametrize("first", range(0, 150, 25))
def test_every_world_keeps_its_promises(first: int) -> None:
    assert failing(range(first, first + 25)) == {}


def test_a_seed_tells_the_same_story_twice() -> None:
    stories: list[list[str]] = [[], []]
    for story in stories:
        World(11, say=story.append).run()
    assert len(stories[0]) > 100
    assert stories[0] == stories[1]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_planted_bugs_are_caught(mutant: Mutant) -> None:
    """Where a second line of defence must hold, a few worlds are enough to see it hold."""
    seeds = range(40) if mutant.is_harmless else (mutant.seed, *range(200))
    assert bool(hunt(mutant, seeds, first_only=True)) != mutant.is_harmless


@pytest.mark.parametrize("planted", PLANTED, ids=lambda planted: planted.name)
def test_bugs_that_are_planted_in_the_source_fit_it(planted: Planted) -> None:
    """That the named tests catch them takes longer: `make mutants`."""
    assert fits(planted), f"plant it anew: its line is not in {planted.path} once"
