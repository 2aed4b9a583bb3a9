"""Yardsticks: plain work of the kind that a bench measures, done in the same run.

A rate alone says as much about the machine as about the release. So every bench does some plain
work of the same kind beside what it measures, and its report says the ratio of both. An empty loop
is no such work: it feels neither the caches nor what arrays and JSON cost, and between two machines
it can differ five times as much as the work does.

`pipeline` and `e2e` have yardsticks of their own, which are clients: one that writes to the log and
reads it, and one that creates pods and binds them.
"""

import time
from collections.abc import Callable
from random import Random
from statistics import median
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

LOOK_S = 0.15
"""CPU time of one look."""
CHANGE_PERCENT_MAX = 20
"""Looks that differ by more do not tell at what speed the bench ran."""
MEMORY_MIB = 81_920
SLOTS = 10
Column = NDArray[np.int64]


class Yardstick(NamedTuple):
    """What plain work reached in a run: units a second, and how far apart the looks were."""

    what: str
    rate: float
    change_percent: float = 0.0


class Looks:
    """Looks at how fast plain work goes, taken around what a bench measures."""

    def __init__(self, what: str, work: Callable[[], int]) -> None:
        """`work` does a little of it and returns how many units that were."""
        self._what = what
        self._work = work
        self._rates: list[float] = []
        work()
        self.look()

    def look(self) -> float:
        """Work for `LOOK_S`; units per CPU-second."""
        done, start = 0, time.thread_time()
        while (took := time.thread_time() - start) < LOOK_S:
            done += self._work()
        self._rates.append(done / took)
        return self._rates[-1]

    def taken(self) -> Yardstick:
        """After a last look: the median of all."""
        self.look()
        apart = 100 * (max(self._rates) / min(self._rates) - 1)
        return Yardstick(self._what, round(median(self._rates), 1), round(apart, 1))


def placements(nodes: int, cards: int, shapes: int) -> Looks:
    """Placing shares of cards, and nothing else that a scheduler does: best fit on columns, with a
    row of scores a shape that follows the nodes that changed.
    """
    bare = _BarePlacement(nodes, cards, max(shapes, 1))
    return Looks(f"bare placement, {nodes} nodes × {cards} cards", bare.turns)


def records() -> Looks:
    """Reading JSON records and keeping sums of what they say, as any reader of a log must."""
    return Looks("bare records of JSON, read and added up", _BareRecords().turns)


class _BarePlacement:
    """Columns are (N nodes, D cards) int64; a score is what would be left on the best card."""

    TURNS = 50

    def __init__(self, nodes: int, cards: int, shapes: int) -> None:
        random = Random(1)
        self._memory: Column = np.full((nodes, cards), MEMORY_MIB, np.int64)
        self._slots: Column = np.full((nodes, cards), SLOTS, np.int64)
        draw = np.random.default_rng(1)
        self._memory -= draw.integers(0, MEMORY_MIB, (nodes, cards))
        self._random = random
        self._shapes = [256 * random.randint(8, 160) for _ in range(shapes)]
        self._rows: dict[int, list[Column]] = {}
        self._seen: dict[int, int] = {}
        self._changed: list[int] = []
        self._running: list[tuple[int, int, int]] = []

    def turns(self) -> int:
        """End a pod and place another, some times."""
        for _ in range(self.TURNS):
            if len(self._running) > self.TURNS:
                at = self._random.randrange(len(self._running))
                self._running[at], last = self._running[-1], self._running[at]
                self._running.pop()
                self._book(*last, sign=1)
            wanted = self._shapes[self._random.randrange(len(self._shapes))]
            found = self._decide(wanted)
            if found is not None:
                self._book(*found, wanted, sign=-1)
                self._running.append((*found, wanted))
        return self.TURNS

    def _decide(self, wanted: int) -> tuple[int, int] | None:
        scores, cards = self._row(wanted)
        node = int(scores.argmin())
        return (node, int(cards[node])) if scores[node] <= MEMORY_MIB else None

    def _row(self, wanted: int) -> list[Column]:
        row = self._rows.get(wanted)
        if row is None:
            row = self._rows[wanted] = list(self._score(wanted, self._memory, self._slots))
        else:
            nodes = np.array(list(set(self._changed[self._seen[wanted] :])), np.int64)
            if len(nodes):
                found = self._score(wanted, self._memory[nodes], self._slots[nodes])
                row[0][nodes], row[1][nodes] = found
        self._seen[wanted] = len(self._changed)
        return row

    def _score(self, wanted: int, memory: Column, slots: Column) -> tuple[Column, Column]:
        """What is left of the best card of each node, and which card that is."""
        left = memory - wanted
        left[(left < 0) | (slots < 1)] = 2 * MEMORY_MIB
        cards = left.argmin(axis=1)
        return np.take_along_axis(left, cards[:, None], axis=1)[:, 0], cards

    def _book(self, node: int, card: int, wanted: int, *, sign: int) -> None:
        self._memory[node, card] += sign * wanted
        self._slots[node, card] += sign
        self._changed.append(node)


class _BareRecords:
    RECORDS = 200

    def __init__(self) -> None:
        self._payloads = [
            msgspec.json.encode(
                {
                    "v": 1,
                    "at_ms": number,
                    "by": "bench",
                    "events": [
                        {
                            "type": "Placed",
                            "uid": f"3f8a91c2-5b7e-4d60-9a1f-{number:012d}",
                            "node": f"gpu-{number % 50:06d}",
                            "holdings": [{"card": number % 8, "memory_mib": 2048, "cores": 10}],
                            "labels": {f"label-{i}": "x" * 20 for i in range(20)},
                        }
                    ],
                }
            )
            for number in range(self.RECORDS)
        ]

    def turns(self) -> int:
        """Read all records, add up what each node's cards have given, and who has it."""
        used: dict[tuple[str, int], int] = {}
        holders: dict[str, str] = {}
        for payload in self._payloads:
            for event in msgspec.json.decode(payload)["events"]:
                holders[event["uid"]] = event["node"]
                for held in event["holdings"]:
                    key = event["node"], held["card"]
                    used[key] = used.get(key, 0) + held["memory_mib"]
        return len(self._payloads)
