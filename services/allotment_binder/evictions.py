"""Pods that have to make room, evicted through the API server, so that budgets are respected.

    Ok                         evicted: it goes within its grace period, or ten minutes
    404, or another uid        gone already, which is as good
    429, or 500, over budgets  refused: a PodDisruptionBudget protects it
    any other, again and again refused, with the server's words

All victims of one preemptor go, or none: it cannot come if one of them stays, and the others would
have been killed for nothing. So the API server is first asked about each in a dry run, and budgets
are counted over all of them (`budgets`); if one is refused none is evicted. Nothing else takes
from a namespace's budgets in between: sets with victims in one namespace go one after the other.

The eviction comes first and the pod's conditions after it: a pod that is said to be not ready is
one that no budget counts on. A second eviction of a pod that is going does no harm, so nothing need
be known of earlier tries.
"""

import contextlib
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence

import anyio

from allotment.adapters.kube.client import STRATEGIC_PATCH, KubeClient, pod_path
from allotment.adapters.kube.result import KubeResult, Ok, Refused
from allotment.core import reasons
from allotment.core.explain.rows.pod_views import evicted_text, preemptor_name
from allotment.core.ledger.evictions import GRACE_MOST_S
from allotment.core.ledger.model import ENDED, ClusterState
from allotment_binder.budgets import BudgetsUnknownError, beyond_budgets
from allotment_binder.notices import Notices, Warned
from allotment_binder.readers import Readers
from allotment_proto.events import Evicted, Eviction, PodObserved

TRIES = 6
RETRY_FIRST_S = 0.2
RETRY_MAX_S = 5.0
AT_ONCE = 4

Say = Callable[[Eviction, str], None]
_End = tuple[str, str]
"""Why a pod is not evicted: code and message; both empty if it is."""
_GONE: _End = ("", "")


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
        self._turns: dict[str, anyio.Lock] = defaultdict(anyio.Lock)
        """By namespace of the victims."""

    def begin(self) -> None:
        """What an earlier life did not settle is done again."""
        self._taken.clear()

    def note(self, uid: str, seq: int) -> None:
        """The decision at this sequence evicts the pod."""
        self._decisions[uid] = seq

    def due(self, state: ClusterState) -> list[list[Eviction]]:
        """Evictions that were not begun in this life, by preemptor."""
        for uid in self._taken.keys() - state.evicting.keys():
            del self._taken[uid]
            self._decisions.pop(uid, None)
        found: dict[str, list[Eviction]] = {}
        for uid, eviction in state.evicting.items():
            if self._taken.get(uid) is not eviction:
                self._taken[uid] = eviction
                found.setdefault(eviction.preemptor, []).append(eviction)
        return list(found.values())

    async def carry_out(self, state: ClusterState, evictions: Sequence[Eviction]) -> list[Evicted]:
        """Evict all pods that make room for one preemptor, or none, however long it takes, and tell
        their users. Pods that are refused come first: users who read that another one stays with
        them have seen these.
        """
        for_whom = preemptor_name(state, evictions[0].preemptor)
        texts = {eviction.uid: evicted_text(state, eviction) for eviction in evictions}
        ends: dict[str, _End] = {}
        graces: dict[str, int | None] = {}
        asked = []
        for eviction in evictions:
            pod = state.pods.get(eviction.uid)
            if pod is not None and pod.fact.phase in ENDED:
                said = f"the pod {pod.fact.phase.lower()} before it was evicted"
                ends[eviction.uid] = reasons.POD_ENDED, said
                continue
            grace_s = None if pod is None else shorter_grace_s(pod.fact, time.time())
            if pod is not None and pod.fact.deleting and grace_s is None:
                ends[eviction.uid] = _GONE
                continue
            graces[eviction.uid] = grace_s
            asked.append(eviction)
        async with self._in_turn(asked):
            stays = await self._refused(asked, graces) if len(asked) > 1 else {}
            ends |= stays or await self._ask(asked, graces, texts)
        stayed = [each for each in asked if ends.get(each.uid, _GONE) != _GONE]
        for each in asked if stayed else ():
            who = f"{stayed[0].namespace}/{stayed[0].name}"
            said = f"pod {who} would have to go as well, and stays"
            ends.setdefault(each.uid, (reasons.OTHER_VICTIM_STAYS, said))
        by_uid = {eviction.uid: eviction for eviction in evictions}
        return [self._ending(by_uid[uid], for_whom, *end) for uid, end in ends.items()]

    @contextlib.asynccontextmanager
    async def _in_turn(self, evictions: Iterable[Eviction]) -> AsyncIterator[None]:
        """While no other set takes from the budgets of these pods' namespaces."""
        async with contextlib.AsyncExitStack() as turns:
            for namespace in sorted({eviction.namespace for eviction in evictions}):
                await turns.enter_async_context(self._turns[namespace])
            yield

    async def _refused(
        self, evictions: Sequence[Eviction], graces: Mapping[str, int | None]
    ) -> dict[str, _End]:
        """Which of these pods may not go, all of them together, by a dry run and by budgets."""
        ends = await self._ask(evictions, graces, dry_run=True)
        stays = {uid: end for uid, end in ends.items() if end != _GONE}
        left = [eviction for eviction in evictions if eviction.uid not in stays]
        for namespace in sorted({eviction.namespace for eviction in left}):
            here = [eviction for eviction in left if eviction.namespace == namespace]
            if len(here) == 1:
                continue
            try:
                beyond = await beyond_budgets(self._client, namespace, here)
            except BudgetsUnknownError as error:
                self._say(here[0], f"disruption budgets cannot be read: {error}")
                stays |= {each.uid: (reasons.API_ERROR, str(error)) for each in here}
                continue
            stays |= {
                uid: (reasons.DISRUPTION_BUDGET, f"budget {name} does not allow so many at once")
                for uid, name in beyond.items()
            }
        return stays

    async def _ask(
        self,
        evictions: Iterable[Eviction],
        graces: Mapping[str, int | None],
        texts: Mapping[str, str] | None = None,
        *,
        dry_run: bool = False,
    ) -> dict[str, _End]:
        """How each eviction ended, those that are refused in front; unless it is a dry run
        no other is evicted once one is refused. `texts`: the notice for each pod that goes.
        """
        stays: dict[str, _End] = {}
        gone: dict[str, _End] = {}

        async def ask(eviction: Eviction) -> None:
            async with self._places:
                if stays and not dry_run:
                    return
                answer = await self._evict(eviction, graces[eviction.uid], dry_run=dry_run)
            if isinstance(answer, Ok) or is_gone(answer):
                gone[eviction.uid] = _GONE
                if isinstance(answer, Ok) and texts is not None:
                    await self._tell(eviction, texts[eviction.uid])
                return
            code = reasons.DISRUPTION_BUDGET if is_protected(answer) else reasons.API_ERROR
            stays[eviction.uid] = code, answer.message

        async with anyio.create_task_group() as group:
            for eviction in evictions:
                group.start_soon(ask, eviction)
        return stays | gone

    async def _evict(self, eviction: Eviction, grace_s: int | None, *, dry_run: bool) -> KubeResult:
        wait_s = RETRY_FIRST_S
        for attempt in range(TRIES):
            answer = await evict(self._client, eviction, grace_s, dry_run=dry_run)
            if isinstance(answer, Ok) or is_gone(answer) or is_protected(answer):
                return answer
            self._say(eviction, answer.message)
            if attempt + 1 < TRIES:
                await anyio.sleep(wait_s)
                wait_s = min(wait_s * 2, RETRY_MAX_S)
        return answer

    async def _tell(self, eviction: Eviction, text: str) -> None:
        """Say on the pod that, and why, it goes. It may be gone by then."""
        note = f"{text}. Ask: allot story {eviction.namespace}/{eviction.name}"
        self._notices.put(
            Warned(eviction.uid, eviction.namespace, eviction.name, "Evict", "Evicting", note)
        )
        path = pod_path(eviction.namespace, eviction.name, "status")
        message = self._readers.text(eviction.namespace, text)
        patch = conditions_patch(eviction.uid, message)
        answer = await self._client.patch(path, patch, STRATEGIC_PATCH)
        if not isinstance(answer, Ok) and not is_gone(answer):
            self._say(eviction, f"its conditions could not be written: {answer.message}")

    def _ending(self, eviction: Eviction, for_whom: str, code: str, message: str) -> Evicted:
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


async def evict(
    client: KubeClient, eviction: Eviction, grace_s: int | None, *, dry_run: bool
) -> KubeResult:
    """Ask once, in a dry run only whether it may go. The uid protects a new pod of the same
    name. Without `grace_s` the pod has its own grace period.
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
    path = pod_path(eviction.namespace, eviction.name, "eviction")
    return await client.create(path, body, {"dryRun": "All"} if dry_run else None)


def is_gone(answer: KubeResult) -> bool:
    """Whether the pod is gone, or another one has its name."""
    return isinstance(answer, Refused) and answer.status in (404, 409)


def is_protected(answer: KubeResult) -> bool:
    """Whether budgets forbid it: one allows none now (an API server that is merely busy answers 429
    as well), or the pod has several, which the API server never evicts.
    """
    if isinstance(answer, Ok):
        return False
    return (answer.status == 429 and "disruption budget" in answer.message) or (
        answer.status == 500 and "more than one PodDisruptionBudget" in answer.message
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
