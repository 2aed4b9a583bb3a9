"""All that a binder does about groups besides binding their pods: see the parts.

Evictions of landed decisions (evictions.py), the status of PodGroups (groups.py) and of Queues
(queue_status.py), what members hear (gang_notices.py), and for which node they wait
(nominations.py).
"""

from collections.abc import Sequence

from anyio.abc import TaskGroup

from allotment.adapters.kube.client import KubeClient
from allotment.adapters.log.fold import Fold
from allotment.adapters.log.recorder import Recorder
from allotment.adapters.service.service import ServiceContext
from allotment.core.explain.rows.pod_views import preemptor_name
from allotment_binder.causes import Causes
from allotment_binder.evictions import Evictions
from allotment_binder.gang_notices import GangNotices
from allotment_binder.group_status import Told
from allotment_binder.groups import GroupStatuses
from allotment_binder.nominations import Nominations
from allotment_binder.notices import Notices
from allotment_binder.queue_status import QueueStatuses
from allotment_binder.readers import Readers
from allotment_binder.settings import BinderSettings
from allotment_proto.events import Decided, Eviction

Context = ServiceContext[BinderSettings]


class Gangs:
    """The parts, and how they hear of what happens. `client` is one that no Binding waits for."""

    def __init__(
        self,
        ctx: Context,
        fold: Fold,
        client: KubeClient,
        notices: Notices,
        readers: Readers,
        causes: Causes,
    ) -> None:
        self.ctx = ctx
        self.evictions = Evictions(client, notices, readers, self._eviction_problem)
        self.statuses = GroupStatuses(
            client, ctx.settings.instance, notices.is_binding, self._group_problem, readers
        )
        self.queues = QueueStatuses(client, self._queue_problem)
        self._fold = fold
        self._news = GangNotices(causes)
        self._nominations = Nominations(causes)

    def begin(self) -> None:
        """A life begins: what an earlier one left is settled, what it told is made sure of."""
        self.evictions.begin()
        self._news.begin(self._fold.state)
        self._nominations.begin(self._fold.state)

    def applied(self, decided: Decided, seq: int) -> None:
        """A decision took effect in the fold."""
        for eviction in decided.evictions:
            self.evictions.note(eviction.uid, seq)
        self._news.landed(self._fold.state, decided)

    def landed(self, decided: Decided) -> None:
        """A decision of this life landed, and its refusals have their notices."""
        self._nominations.landed(self._fold.state, decided)

    def start_evictions(self, group: TaskGroup, outcomes: Recorder) -> None:
        """Begin the evictions that are due, each preemptor's together; each ends as an outcome."""
        for evictions in self.evictions.due(self._fold.state):
            group.start_soon(self._evict, evictions, outcomes)

    async def _evict(self, evictions: Sequence[Eviction], outcomes: Recorder) -> None:
        """Evict the pods that make room for one preemptor."""
        endings = await self.evictions.carry_out(self._fold.state, evictions)
        outcomes.put(endings)
        by_uid = {eviction.uid: eviction for eviction in evictions}
        for ending in endings:
            eviction = by_uid[ending.uid]
            self._nominations.ended(self._fold.state, eviction, ending)
            if not ending.code:
                await self._tell_group(eviction)
            self.ctx.log.info(
                "pod not evicted" if ending.code else "pod evicted",
                namespace=eviction.namespace,
                pod=eviction.name,
                node=eviction.node,
                action=eviction.action,
                preemptor=eviction.preemptor,
                code=ending.code,
                reason=ending.message,
            )

    async def _tell_group(self, eviction: Eviction) -> None:
        """An Event about the PodGroup that loses a pod."""
        pod = self._fold.state.pods.get(eviction.uid)
        group = None if pod is None else self._fold.state.groups.get(pod.fact.group)
        if group is not None and group.fact is not None:
            whom = preemptor_name(self._fold.state, eviction.preemptor)
            note = f"{eviction.action}: pod {eviction.name} makes room for {whom}"
            about = group.fact
            told = Told("Normal", "Evict", note)
            await self.statuses.tell(about.namespace, about.name, about.uid, told)

    def _group_problem(self, group: str, text: str) -> None:
        self.ctx.log.warning("the group's status could not be written", group=group, reason=text)

    def _queue_problem(self, queue: str, text: str) -> None:
        self.ctx.log.warning("the queue's status could not be written", queue=queue, reason=text)

    def _eviction_problem(self, eviction: Eviction, text: str) -> None:
        self.ctx.log.warning(
            "eviction", namespace=eviction.namespace, pod=eviction.name, reason=text
        )
