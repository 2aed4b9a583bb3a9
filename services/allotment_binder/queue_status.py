"""What each Queue has, in its status: `allocated`, as Volcano's scheduler writes it.

It follows from the fold alone: what the pods of its groups hold, and those of the queues below it.
Written is what changed, and no more often than every `WRITE_EVERY_S`. The whole list is replaced,
because a name that is no longer held has to go.
"""

from collections.abc import Callable, Iterable, Mapping
from urllib.parse import quote

import anyio

from allotment.adapters.kube.client import JSON_PATCH, KubeClient
from allotment.adapters.kube.result import KubeResult, Ok, Refused
from allotment.adapters.log.fold import Fold
from allotment.adapters.telemetry.log import one_line
from allotment.core.ledger.model import ClusterState
from allotment.core.queues.model import CHARGED_SET, JobView, QueueView
from allotment.core.queues.reckoning import Reckoning, Share
from allotment.core.queues.resources import CPU, MEMORY, PODS, Resources, total_of
from allotment.core.queues.round.views import Views

WRITE_EVERY_S = 1.0
NO_STATUS = frozenset((400, 422))
"""How a server refuses to put something into a status that is not there."""
Amounts = dict[str, str]


class QueueUse:
    """What the queues of one state have. Only jobs that changed are counted again."""

    def __init__(self, state: ClusterState) -> None:
        self.state = state
        self._views = Views(state)
        self._reckoning = Reckoning(())

    def follow(self) -> dict[str, Amounts]:
        """By queue, what its pods and those of the queues below it hold, as quantities."""
        views = self._views
        changes = views.follow()
        if changes is None:
            self._reckoning = Reckoning(views.jobs)
        else:
            self._reckoning.follow(changes)
        queues = {queue.name: queue for queue in views.queues()}
        books = self._reckoning.books(views.jobs, _share)
        held: dict[str, list[Resources]] = {name: [] for name in queues}
        for name in queues:
            allocated = books[name].allocated
            if allocated:
                for above in _chain(queues, name):
                    held[above].append(allocated)
        known = self.state.queues
        return {name: quantities(total_of(held[name])) for name in sorted(known)}


def _share(view: JobView) -> Share:
    held = [task.request for task in view.tasks if task.status in CHARGED_SET]
    return Share(allocated=total_of(held))


def _chain(queues: Mapping[str, QueueView], name: str) -> Iterable[str]:
    """A queue and those above it, the root included. A circle is cut where it closes."""
    found: list[str] = []
    while name in queues and name not in found:
        found.append(name)
        name = queues[name].parent
    return found


def quantities(amounts: Resources) -> Amounts:
    """Amounts as Kubernetes writes them; CPU and memory are always named."""
    found = {CPU: _milli(int(amounts.amount(CPU))), MEMORY: _bytes(int(amounts.amount(MEMORY)))}
    for name in sorted(amounts.named):
        amount = int(amounts[name])
        if name not in found and amount:
            found[name] = str(amount) if name == PODS else _milli(amount)
    return found


def _milli(amount: int) -> str:
    return f"{amount}m" if amount % 1000 else str(amount // 1000)


def _bytes(amount: int) -> str:
    for unit in ("", "Ki", "Mi", "Gi", "Ti"):
        if amount % 1024 or not amount:
            return f"{amount}{unit}"
        amount //= 1024
    return f"{amount}Pi"


class QueueStatuses:
    """Writes what queues have. `written` counts the writes."""

    def __init__(self, client: KubeClient, say: Callable[[str, str], None]) -> None:
        """`say` hears of a queue and why its status could not be written."""
        self.written = 0
        self._client = client
        self._say = say
        self._told: dict[str, tuple[str, Amounts]] = {}
        """By queue, its uid and what its status says."""
        self._troubles: dict[str, str] = {}

    async def run(self, fold: Fold) -> None:
        """Follow the log for ever. What earlier lives wrote is written again."""
        self._told.clear()
        use = QueueUse(fold.state)
        while True:
            if use.state is not fold.state:
                use = QueueUse(fold.state)
            seq = fold.state.seq
            is_done = await self._write(use)
            await anyio.sleep(WRITE_EVERY_S)
            if is_done and fold.state.seq == seq:
                await fold.changed()

    async def _write(self, use: QueueUse) -> bool:
        """Write what is not said yet; whether all of it is said now."""
        has = use.follow()
        is_done = True
        for name in self._told.keys() - has.keys():
            del self._told[name]
        for name, amounts in has.items():
            fact = use.state.queues.get(name)
            if fact is None or self._told.get(name) == (fact.uid, amounts):
                continue
            try:
                answer = await self._patch(name, amounts)
            except Exception as error:  # whatever it is: of this queue, not of the others
                is_done = False
                self._trouble(name, one_line(error))
                continue
            if isinstance(answer, Ok):
                self.written += 1
                self._troubles.pop(name, None)
                self._told[name] = fact.uid, amounts
            elif not (isinstance(answer, Refused) and answer.status == 404):
                is_done = False
                self._trouble(name, answer.message)
        return is_done

    def _trouble(self, name: str, text: str) -> None:
        """Say why a queue's status could not be written, once while it stays the same."""
        if self._troubles.get(name) != text:
            self._troubles[name] = text
            self._say(name, text)

    async def _patch(self, name: str, amounts: Amounts) -> KubeResult:
        path = f"/apis/scheduling.volcano.sh/v1beta1/queues/{quote(name, safe='')}/status"
        status = {"allocated": amounts, "reservation": {}}
        steps = [
            {"op": "add", "path": f"/status/{key}", "value": value} for key, value in status.items()
        ]
        answer = await self._client.patch(path, steps, JSON_PATCH)
        if isinstance(answer, Refused) and answer.status in NO_STATUS:
            return await self._client.patch(path, {"status": status})
        return answer
