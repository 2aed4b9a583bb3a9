"""Pods that have to make room, evicted through the API server, so that budgets are respected.

    Ok                         evicted: it goes within its grace period, or ten minutes
    404, or another uid        gone already, which is as good
    429 over a budget          refused: a PodDisruptionBudget protects it
    any other, again and again refused, with the server's words

The eviction comes first and the pod's conditions after it: a pod that is said to be not ready is
one that no budget counts on. A second eviction of a pod that is going does no harm, so nothing need
be known of earlier tries.
"""

import time
from collections.abc import Callable

import anyio

from allotment.adapters.kube.client import STRATEGIC_PATCH, KubeClient, pod_path
from allotment.adapters.kube.result import KubeResult, Ok, Refused
from allotment.core import reasons
from allotment.core.explain.pod_views import preemptor_name
from allotment.core.ledger.evictions import GRACE_MOST_S
from allotment.core.ledger.model import ENDED, ClusterState
from allotment.core.queues import texts
from allotment_binder.notices import Notices, Warned
from allotment_binder.readers import Readers
from allotment_proto.events import Evicted, Eviction, PodObserved

TRIES = 6
RETRY_FIRST_S = 0.2
RETRY_MAX_S = 5.0
AT_ONCE = 4

Say = Callable[[Eviction, str], None]


class Evictions:
    """The evictions that the log asks for, each carried out once by each life."""

    def __init__(self, client: KubeClient, notices: Notices, readers: Readers, say: Say) -> None:
        self.evicted = 0
        self.refused = 0
        self._client = client
        self._notices = notices
        self._readers = readers
        self._say = say
        self._taken: dict[str, Eviction] = {}
        self._decisions: dict[str, int] = {}
        self._places = anyio.Semaphore(AT_ONCE)

    def begin(self) -> None:
        """What an earlier life did not settle is done again."""
        self._taken.clear()

    def note(self, uid: str, seq: int) -> None:
        """The decision at this sequence evicts the pod."""
        self._decisions[uid] = seq

    def due(self, state: ClusterState) -> list[Eviction]:
        """Evictions that were not begun in this life."""
        for uid in self._taken.keys() - state.evicting.keys():
            del self._taken[uid]
            self._decisions.pop(uid, None)
        found = [e for uid, e in state.evicting.items() if self._taken.get(uid) is not e]
        self._taken.update((eviction.uid, eviction) for eviction in found)
        return found

    async def carry_out(self, state: ClusterState, eviction: Eviction) -> Evicted:
        """Evict one pod, however long it takes, and tell its user."""
        pod, for_whom = state.pods.get(eviction.uid), preemptor_name(state, eviction.preemptor)
        if pod is not None and pod.fact.phase in ENDED:
            said = f"the pod {pod.fact.phase.lower()} before it was evicted"
            return self._ending(eviction, for_whom, reasons.POD_ENDED, said)
        grace_s = None if pod is None else shorter_grace_s(pod.fact, time.time())
        if pod is not None and pod.fact.deleting and grace_s is None:
            return self._ending(eviction, for_whom)
        async with self._places:
            answer = await self._evict(eviction, grace_s)
        if isinstance(answer, Ok):
            await self._tell(eviction, for_whom)
            return self._ending(eviction, for_whom)
        if is_gone(answer):
            return self._ending(eviction, for_whom)
        code = reasons.DISRUPTION_BUDGET if is_protected(answer) else reasons.API_ERROR
        return self._ending(eviction, for_whom, code, answer.message)

    async def _evict(self, eviction: Eviction, grace_s: int | None) -> KubeResult:
        wait_s = RETRY_FIRST_S
        for attempt in range(TRIES):
            answer = await evict(self._client, eviction, grace_s)
            if isinstance(answer, Ok) or is_gone(answer) or is_protected(answer):
                return answer
            self._say(eviction, answer.message)
            if attempt + 1 < TRIES:
                await anyio.sleep(wait_s)
                wait_s = min(wait_s * 2, RETRY_MAX_S)
        return answer

    async def _tell(self, eviction: Eviction, preemptor: str) -> None:
        """Say on the pod that, and why, it goes. It may be gone by then."""
        note = texts.evicted(eviction.action)
        self._notices.put(
            Warned(eviction.uid, eviction.namespace, eviction.name, "Evict", "Evicting", note)
        )
        path = pod_path(eviction.namespace, eviction.name, "status")
        message = self._readers.text(eviction.namespace, f"{note}: room is made for {preemptor}")
        patch = conditions_patch(eviction.uid, message)
        answer = await self._client.patch(path, patch, STRATEGIC_PATCH)
        if not isinstance(answer, Ok) and not is_gone(answer):
            self._say(eviction, f"its conditions could not be written: {answer.message}")

    def _ending(
        self, eviction: Eviction, for_whom: str, code: str = "", message: str = ""
    ) -> Evicted:
        self.evicted += not code
        self.refused += bool(code)
        return Evicted(
            uid=eviction.uid,
            namespace=eviction.namespace,
            name=eviction.name,
            node=eviction.node,
            decision=self._decisions.get(eviction.uid, 0),
            code=code,
            message=message[:500],
            action=eviction.action,
            for_whom=for_whom,
        )


def shorter_grace_s(fact: PodObserved, now_s: float) -> int | None:
    """The grace period that a pod's eviction names, which is counted from its deletion; None if its
    own is short enough.
    """
    deleted_s = fact.deadline_ms // 1000 - fact.grace_s if fact.deleting else now_s
    most_s = int(now_s - deleted_s) + GRACE_MOST_S
    return most_s if fact.grace_s > most_s else None


async def evict(client: KubeClient, eviction: Eviction, grace_s: int | None) -> KubeResult:
    """Ask once. The uid keeps a pod safe that was made anew under the name. Without `grace_s` the
    pod has its own grace period.
    """
    options: dict[str, object] = {"preconditions": {"uid": eviction.uid}}
    if grace_s is not None:
        options["gracePeriodSeconds"] = grace_s
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": eviction.name, "namespace": eviction.namespace},
        "deleteOptions": options,
    }
    return await client.create(pod_path(eviction.namespace, eviction.name, "eviction"), body)


def is_gone(answer: KubeResult) -> bool:
    """Whether the pod is not there any more, or another one has its name."""
    return isinstance(answer, Refused) and answer.status in (404, 409)


def is_protected(answer: KubeResult) -> bool:
    """Whether a budget forbids it. An API server that is merely busy answers 429 as well."""
    return not isinstance(answer, Ok) and (
        answer.status == 429 and "disruption budget" in answer.message
    )


def conditions_patch(uid: str, message: str) -> dict[str, object]:
    """Ready=False and DisruptionTarget=True, as a strategic merge patch of this very pod."""
    conditions = [
        {"type": "Ready", "status": "False", "reason": "Evict", "message": message},
        {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "PreemptionByScheduler",
            "message": message,
        },
    ]
    return {"metadata": {"uid": uid}, "status": {"conditions": conditions}}
