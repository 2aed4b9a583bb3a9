"""What pods used, added up beside a fold, and held against what they hold after each record."""

from collections import Counter

from allotment.core.ledger.model import Allocation, ClusterState
from allotment.core.replay.usage import NAMESPACE, Meter, name_of
from allotment_proto.facts import Amounts


class Metered:
    """Call `took` after each record took effect on the state, and `check` in the end. A record's
    time is its sequence, in milliseconds.
    """

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._edges = [state.seq, 1 << 60]
        self._meter = Meter(state, self._edges, name_of(NAMESPACE, state))
        self._last_ms = state.seq
        self._held: dict[str, tuple[int, int, int, Amounts]] = {}
        self._devices, self._memory_mib, self._cpu_milli = Counter[str](), 0, 0
        self._extended = Counter[str]()
        self._pods: set[str] = set()
        self._look()

    def took(self, seq: int) -> None:
        self._pass(seq)
        self._meter.take(seq)
        self._look()

    def check(self) -> None:
        """All that pods held, summed over the milliseconds, is what the meter says; a millisecond
        later, so that what was booked last counts.
        """
        end = self._last_ms + 1
        self._pass(end)
        self._edges[-1] = end
        [found] = self._meter.found()
        assert sum(used.device_ms for used in found) == self._devices.total()
        assert sum(used.memory_mib_ms for used in found) == self._memory_mib
        assert sum(used.cpu_milli_ms for used in found) == self._cpu_milli
        counted = Counter[str]()
        for used in found:
            counted.update(used.counted_ms)
        assert counted == self._extended
        assert sum(used.pods for used in found) >= len(self._pods)

    def _pass(self, to_ms: int) -> None:
        ms = to_ms - self._last_ms
        for uid, (devices, memory_mib, cpu_milli, extended) in self._held.items():
            if ms:
                self._pods.add(uid)
            self._devices[uid] += devices * ms
            self._memory_mib += memory_mib * ms
            self._cpu_milli += cpu_milli * ms
            for name, amount in extended:
                self._extended[name] += amount * ms
        self._last_ms = to_ms

    def _look(self) -> None:
        self._held = {
            uid: _amounts(pod.allocation)
            for uid, pod in self._state.pods.items()
            if pod.allocation is not None
        }


def _amounts(held: Allocation) -> tuple[int, int, int, Amounts]:
    counted = held.quota_holdings
    memory_mib = sum(holding.memory_mib for holding in counted)
    return len(counted), memory_mib, held.cpu_milli, held.extended
