"""Sends Bindings, so many at a time, and records and tells how each ended.

A task for every Binding costs nearly as much as what this service itself does for one. So a few
workers, no more than there may be requests in flight, take one after the other, and end when none
is left. A Binding that takes its time (a lock, a claim or an answer is waited for) keeps none of
the others waiting: its worker stays with it alone, and another one takes the worker's place.
"""

import time
from collections import deque
from collections.abc import Callable, Iterable

from anyio.abc import TaskGroup

from allotment.adapters.kube import client as kube
from allotment.adapters.log.recorder import Recorder
from allotment.adapters.service.service import ServiceContext
from allotment.adapters.service.world import World
from allotment.core import reasons
from allotment.core.explain.rows.acknowledgement import plugin_question
from allotment.core.ledger.model import Allocation
from allotment.core.queues.texts import bind_error
from allotment_binder import notices
from allotment_binder.bind_times import BindTime, BindTimes
from allotment_binder.bindings import Obstacle, Target, bind, obstacle_to
from allotment_binder.locks import Held, NodeLocks
from allotment_binder.notices import Notices
from allotment_binder.pacer import Pacer
from allotment_binder.records import Deleted
from allotment_binder.settings import BinderSettings
from allotment_binder.troubles import Troubles
from allotment_binder.volume_claims import bind_claims, tell_claims
from allotment_proto.events import BindFailed, Bound


class Sender:
    """What one Binding after the other needs. `bound` and `failed` count how they ended."""

    def __init__(
        self,
        ctx: ServiceContext[BinderSettings],
        world: World,
        client: kube.KubeClient,
        told: Notices,
        troubles: Troubles,
        deleted: Deleted,
    ) -> None:
        self.deleted = deleted
        self.bound = 0
        self.failed = 0
        self.locks = NodeLocks(client, self._lock_problem, time.time)
        self.times = BindTimes()
        self._ctx = ctx
        self._world = world
        self._client = client
        self._notices = told
        self._troubles = troubles

    def life(
        self, group: TaskGroup, outcomes: Recorder, pacer: Pacer, inherited: set[str]
    ) -> "Sending":
        """For the length of `group`; an earlier life may have bound the `inherited` pods."""
        return Sending(self, group, outcomes, pacer, inherited, self._ctx.settings.kube_concurrency)

    def target(self, allocation: Allocation) -> tuple[Target, BindTime]:
        """What to bind; by the time it is sent the pod may be gone from the log."""
        fact = self._world.fold.state.pods[allocation.uid].fact
        question = plugin_question(allocation.holdings)
        place = None if question is None else (allocation.node, question)
        timed = self.times.begin(allocation.seq, fact.created_ms, place)
        return Target(fact.namespace, fact.name, allocation), timed

    async def send(
        self,
        target: Target,
        timed: BindTime,
        worker: "Worker",
        *,
        look_first: bool,
        on_gone: Callable[[], None],
    ) -> Bound | BindFailed:
        """Bind a pod and tell how it ended; the log is not told yet. `on_gone` as in `bind`."""
        with self._notices.binding():
            ending = await bind(
                self._client,
                target,
                time.time_ns() // 1_000_000_000,
                look_first=look_first,
                is_traced=self._ctx.settings.traceparent,
                prepare=lambda: timed.prepared(lambda: self._prepare(target, worker)),
                is_reserved=lambda: self._is_reserved(target.allocation),
                on_problem=lambda text: self._ctx.log.warning(
                    "how the Binding ended is not known yet, asking again",
                    namespace=target.namespace,
                    pod=target.name,
                    reason=text,
                ),
                on_wait=worker.stand_aside,
                on_gone=on_gone,
            )
        if isinstance(ending, Bound):
            self.bound += 1
            timed.bound()
            self._notices.put(
                notices.Scheduled(ending.uid, ending.namespace, ending.name, ending.node)
            )
        else:
            self.failed += 1
            self._tell(target, ending)
        return ending

    async def release(self, allocation: Allocation) -> None:
        """Give back the locks of a pod that was not bound, if it has any."""
        if allocation.uid in self.locks.held:
            await self.locks.release(Held.of(allocation))

    async def _prepare(self, target: Target, worker: "Worker") -> Obstacle | None:
        """Right before a Binding: whether it makes sense still, the node's lock if it is on, and
        that claims which wait for the pod know its node.
        """
        state, allocation = self._world.fold.state, target.allocation

        def is_wanted() -> bool:
            return self._is_reserved(allocation) and obstacle_to(state, allocation) is None

        obstacle = obstacle_to(state, allocation)
        if obstacle is None and state.policy.node_lock:
            worker.stand_aside()
            with self._notices.not_binding():
                taken = await self.locks.take(
                    target, is_wanted, lambda text: self._troubles.lock_wait(target, text)
                )
            obstacle = obstacle_to(state, allocation) or taken
        pod = state.pods.get(allocation.uid)
        if obstacle is None and pod is not None and pod.fact.claims:
            worker.stand_aside()
            told = await tell_claims(
                self._client, target, pod.fact.claims, is_wanted, self._claim_problem
            )
            obstacle = obstacle_to(state, allocation) or told
        if obstacle is None and allocation.volumes:
            worker.stand_aside()
            given = await bind_claims(self._client, target, is_wanted, self._claim_problem)
            obstacle = obstacle_to(state, allocation) or given
        return obstacle

    def _is_reserved(self, allocation: Allocation) -> bool:
        """Whether the decision stands still, as far as the log is known here."""
        pod = self._world.fold.state.pods.get(allocation.uid)
        held = None if pod is None else pod.allocation
        return held is not None and held.seq == allocation.seq

    def _tell(self, target: Target, ending: BindFailed) -> None:
        if ending.code == reasons.API_ERROR:
            self._tell_failed(target, ending)
        self._ctx.log.warning(
            "pod not bound",
            namespace=target.namespace,
            pod=target.name,
            node=target.allocation.node,
            code=ending.code,
            reason=ending.message,
        )

    def _tell_failed(self, target: Target, ending: BindFailed) -> None:
        """Only an administrator can cure this, so the pod says what is wrong. Once."""
        uid = target.allocation.uid
        pod = self._world.fold.state.pods.get(uid)
        said = bind_error(ending.node, f"{ending.code}: {ending.message}")
        is_news = pod is not None and pod.bind_failures == 0
        self._notices.put(
            notices.Refused(
                uid, target.namespace, target.name, said.message, is_news, reason=said.reason
            )
        )

    def _claim_problem(self, text: str) -> None:
        self._ctx.log.warning("claim", reason=text)

    def _lock_problem(self, text: str) -> None:
        self._ctx.log.warning("node lock", reason=text)


class Sending:
    """One life's Bindings: those that have not been begun, and how many workers take them."""

    def __init__(
        self,
        sender: Sender,
        group: TaskGroup,
        outcomes: Recorder,
        pacer: Pacer,
        inherited: set[str],
        workers_max: int,
    ) -> None:
        self.sender = sender
        self.waiting: deque[tuple[Target, BindTime]] = deque()
        self.working = 0
        """Workers that take another Binding after the one they are at."""
        self._group = group
        self._outcomes = outcomes
        self._pacer = pacer
        self._inherited = inherited
        self._workers_max = workers_max

    def put(self, allocations: Iterable[Allocation]) -> None:
        """Bind these, in their order."""
        self.waiting.extend(map(self.sender.target, allocations))
        self.hire()

    def hire(self) -> None:
        """As many workers as there is work for."""
        for _ in range(min(len(self.waiting), self._workers_max - self.working)):
            self.working += 1
            self._group.start_soon(Worker(self).run)

    async def bind(self, target: Target, timed: BindTime, worker: "Worker") -> None:
        uid = target.allocation.uid
        look_first = uid in self._inherited

        def gone() -> None:
            # Its kubelet may still come to it: no pod takes its place before. Noted here, as
            # the log will say that it was not bound, and then that it is gone.
            place = self._pacer.place_of(uid)
            if place is not None:
                self.sender.deleted.hold(place, self._pacer.served_before(uid))

        ending = await self.sender.send(target, timed, worker, look_first=look_first, on_gone=gone)
        self._outcomes.put([ending])
        self._pacer.ended(uid)
        if isinstance(ending, BindFailed):
            worker.stand_aside()
            await self.sender.release(target.allocation)


class Worker:
    """Binds one pod after the other, until none is left or one takes its time."""

    def __init__(self, sending: Sending) -> None:
        self._sending = sending
        self._is_aside = False

    async def run(self) -> None:
        sending = self._sending
        while not self._is_aside:
            if not sending.waiting:
                sending.working -= 1
                return
            await sending.bind(*sending.waiting.popleft(), self)

    def stand_aside(self) -> None:
        """Stay with what is being bound alone: it may take its time, and others go on."""
        if not self._is_aside:
            self._is_aside = True
            self._sending.working -= 1
            self._sending.hire()
