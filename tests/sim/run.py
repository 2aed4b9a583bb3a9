"""`python -m tests.sim.run --seeds N`, or one world in detail: `--seed S --verbose`."""

import argparse
import sys
import time
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext

from tests.sim.auditor import Broken
from tests.sim.world import World

SHOWN_MAX = 5


def failing(
    seeds: Iterable[int],
    bugs: frozenset[str] = frozenset(),
    patched: AbstractContextManager[object] | None = None,
    *,
    first_only: bool = False,
) -> dict[int, str]:
    """Seed → what broke, for the worlds that broke a promise."""
    found: dict[int, str] = {}
    with patched or nullcontext():
        for seed in seeds:
            try:
                World(seed, bugs).run()
            except (Broken, AssertionError, KeyError) as error:
                found[seed] = f"{type(error).__name__}: {error}"
                if first_only:
                    break
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim.run", description=__doc__)
    parser.add_argument("--seeds", type=int, default=200, help="how many worlds")
    parser.add_argument("--seed", type=int, help="one world only")
    parser.add_argument("--verbose", action="store_true", help="tell what happens")
    options = parser.parse_args()
    if options.seed is not None:
        world = World(options.seed, say=print if options.verbose else None)
        world.run()
        print(f"seed {options.seed}: {world.log.last_seq} records, all promises kept")
        return 0
    started = time.perf_counter()
    found = failing(range(options.seeds))
    for seed, what in list(found.items())[:SHOWN_MAX]:
        print(f"seed {seed}: {what}\n  again: python -m tests.sim.run --seed {seed} --verbose")
    elapsed_s = time.perf_counter() - started
    print(f"{options.seeds} worlds, {len(found)} broken, {elapsed_s:.1f} s")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
