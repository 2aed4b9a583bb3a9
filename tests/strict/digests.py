"""`python -m tests.strict.digests`: what recorded logs and simulated worlds come to, as hashes.

One line each: a name and a SHA-256. Whatever the hash seed and the version of Python, the lines are
the same. Every decision of a log is made again under the traps, on a state that was written as a
snapshot and read again just before: its dicts and sets have another order than the folded one's.
"""

import argparse
import hashlib
from collections.abc import Iterable, Iterator, Sequence

from allotment.core.ledger import snapshot
from allotment.core.logport import Record
from allotment.core.placement.cycle import Outcome
from allotment.core.queues.round.rounds import Rounds
from allotment.core.replay.again import Finding
from allotment.core.replay.replay import Index, Replayer, Stop
from tests.recorded import names, read_log
from tests.sim.world import World
from tests.strict.traps import trapped


class DecidesDifferently(AssertionError):
    """A decision is not made again as it was recorded."""


class _Restarted(Replayer):
    """Decides each time as a service that has just started from a snapshot."""

    def _place_again(self, stop: Stop) -> tuple[Finding, Outcome | None]:
        self.state = snapshot.decode(snapshot.encode(self.state))
        self._ranker, self._rounds = self._make_ranker(self.state), Rounds(self.state)
        return super()._place_again(stop)


def of_log(records: Sequence[Record]) -> str:
    """The hash of the state that a log ends in. Raises DecidesDifferently and ImpureError."""
    index = Index()
    for record in records:
        index.feed(record)
    with trapped():
        replayer = _Restarted(index.stops)
        for record in records:
            replayer.feed(record)
        report = replayer.report()
    if report.identical != report.decisions:
        raise DecidesDifferently(str(report.first_difference or report.first_skipped))
    return report.state_sha256


def of_world(seed: int) -> str:
    """The hash of all records of a simulated world."""
    world = World(seed)
    world.run()
    found = hashlib.sha256()
    for record in world.log.records:
        found.update(record.subject.encode() + b"\0" + record.payload)
    return found.hexdigest()


def lines(logs: Iterable[str], worlds: int) -> Iterator[str]:
    """The digests of these recorded logs and so many worlds."""
    for name in logs:
        yield f"{name} {of_log(read_log(name))}"
    for seed in range(worlds):
        yield f"world-{seed} {of_world(seed)}"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.strict.digests", description=__doc__)
    parser.add_argument("--worlds", type=int, default=20, help="how many simulated worlds")
    parser.add_argument("logs", nargs="*", help="recorded logs (default: all)")
    options = parser.parse_args()
    for line in lines(options.logs or names(), options.worlds):
        print(line, flush=True)


if __name__ == "__main__":
    main()
