"""`python -m tests.strict`: the digests under several hash seeds and Python versions, compared."""

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.recorded import names, read_log
from tests.replaying import replayed

ROOT = Path(__file__).parents[2]
SEEDS = ("0", "1", "random", "random")


def digests(python: str, seed: str, worlds: int) -> list[str]:
    """The lines of one run. Raises CalledProcessError, with what it said on stderr."""
    command = [python, "-m", "tests.strict.digests", "--worlds", str(worlds)]
    packages = (*ROOT.glob("services"), ROOT / "libs", ROOT / "proto")
    path = os.pathsep.join(map(str, (ROOT, *packages)))
    env = os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": path}
    done = subprocess.run(command, cwd=ROOT, env=env, stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout.splitlines()


def differing(runs: Sequence[tuple[str, list[str]]]) -> list[str]:
    """What differs between the first run and each other one, a line each."""
    (first, wanted), *others = runs
    return [
        f"{name}: {line!r} is {other!r} under {first}"
        for name, found in others
        for line, other in zip(found, wanted, strict=True)
        if line != other
    ]


def decided_otherwise() -> list[tuple[str, int, int]]:
    """Each kept log, how many decisions it has, and how many today's rules would make otherwise."""
    found = []
    for name in names():
        report = replayed(read_log(name))
        found.append((name, report.decisions, report.decisions - report.identical))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.strict", description=__doc__)
    parser.add_argument("--worlds", type=int, default=20, help="how many simulated worlds")
    parser.add_argument(
        "--python",
        action="append",
        default=[],
        metavar="PROGRAM",
        help="another Python that has the dependencies, as of `make install PYTHON=…` elsewhere",
    )
    options = parser.parse_args()
    runs = []
    for python in (sys.executable, *options.python):
        version = subprocess.run([python, "-V"], capture_output=True, text=True, check=True)
        for seed in SEEDS:
            name = f"{version.stdout.strip()}, hash seed {seed}"
            runs.append((name, digests(python, seed, options.worlds)))
            print(f"{name}: {len(runs[-1][1])} digests", flush=True)
    found = differing(runs)
    print("\n".join(found) or "all equal")
    rows = decided_otherwise()
    otherwise = [row for row in rows if row[2]]
    print(f"{len(rows)} kept logs, {sum(row[1] for row in rows)} decisions, otherwise today:")
    print(
        "\n".join(f"  {name}: {count} of {total}" for name, total, count in otherwise) or "  none"
    )
    return 1 if found or otherwise else 0


if __name__ == "__main__":
    sys.exit(main())
