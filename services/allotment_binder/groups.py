"""PodGroups brought in line with the log: admission, phase, counts, conditions and Events.

What is to be written follows from the fold alone, so a binder that starts writes whatever its
predecessor did not: an admitted group that still has the phase Pending is patched again. Only what
changed is written, and only over the very version that was looked at. Admitted groups come
first, because their pods are made only then; the rest goes one by one while Bindings are under way.
"""

import secrets
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import NamedTuple
from urllib.parse import quote

import anyio
import msgspec

from allotment.adapters.kube.client import MERGE_PATCH, KubeClient
from allotment.adapters.kube.events import SCHEDULER, create_event, micro_time, pod_event
from allotment.adapters.kube.result import Ok, Refused, Unknown
from allotment.adapters.kube.wire import shallow
from allotment.adapters.log.fold import Fold
from allotment.adapters.telemetry.log import one_line
from allotment.core.ledger.groups import NOT_ADMITTED
from allotment.core.ledger.model import ClusterState, Group
from allotment.core.queues.model import JobView
from allotment.core.queues.round.members import job_of
from allotment_binder.group_status import Change, SeenGroup, Told, change_of, quota_of
from allotment_binder.readers import Readers
from allotment_proto.codec import UNREADABLE
from allotment_proto.events import Admission, Short

API_VERSION = "scheduling.volcano.sh/v1beta1"
SWEEP_EVERY_S = 0.2
SWEEP_SHARE = 10
"""A look at what changed costs time on every service's core: it pauses so many times as long."""
WORKERS = 4
CONFLICTS_MAX = 5
RETRY_FIRST_S = 0.5
RETRY_MAX_S = 30.0

Stamp = tuple[int, Short | None, Admission | None]
"""What a group's status follows from: its last change, and what was decided about it."""

_STATUS_LEVELS = 4
"""A PodGroup's conditions, which is as deep as its status is read."""


def _decode(body: bytes) -> SeenGroup:
    """A PodGroup as far as it is read; users may put anything into the fields that are not."""
    try:
        return msgspec.json.decode(body, type=SeenGroup)
    except UNREADABLE:
        return msgspec.json.decode(shallow(body, _STATUS_LEVELS), type=SeenGroup)


class _Retry(NamedTuple):
    failures: int
    at_s: float


class _Followed(NamedTuple):
    """How far the state's trails were followed, and under which policy."""

    jobs: int
    told: int
    policy_seq: int


_NOWHERE = _Followed(-1, -1, -1)


class GroupStatuses:
    """Writes the status of our PodGroups. `written` and `lost` count patches and Events, `visited`
    the groups that were looked at.
    """

    def __init__(
        self,
        client: KubeClient,
        instance: str,
        is_binding: Callable[[], bool],
        say: Callable[[str, str], None],
        readers: Readers,
    ) -> None:
        """`is_binding`: whether Bindings are under way; `say` hears of a group and its trouble."""
        self.written = 0
        self.lost = 0
        self.visited = 0
        self._client = client
        self._instance = instance
        self._is_binding = is_binding
        self._say = say
        self._readers = readers
        self._stamps: dict[str, Stamp] = {}
        self._seen: dict[str, SeenGroup] = {}
        self._retries: dict[str, _Retry] = {}
        self._followed = _NOWHERE

    async def run(self, fold: Fold) -> None:
        """Follow the log for ever. What earlier lives wrote is read again."""
        self._stamps.clear()
        self._seen.clear()
        self._retries.clear()
        self._followed = _NOWHERE
        while True:
            begun_s, seq = time.monotonic(), fold.state.seq
            keys = self._due(fold.state)
            pause_s = max(SWEEP_EVERY_S, SWEEP_SHARE * (time.monotonic() - begun_s))
            if keys:
                await self._bring_all(fold.state, keys)
            if fold.state.seq == seq:
                with anyio.move_on_after(self._until_retry_s()):
                    await fold.changed()
            await anyio.sleep(pause_s)

    def _due(self, state: ClusterState) -> list[str]:
        """Groups that changed, or that are worth another try; admitted ones first."""
        now_s = time.monotonic()
        first: list[str] = []
        then: list[str] = []
        for key in self._news(state):
            self.visited += 1
            group = state.groups.get(key)
            if group is None or group.fact is None or not is_ours(state, group):
                self._forget(key)
                continue
            retry = self._retries.get(key)
            stamp = group.changed_seq, group.short, group.gate
            if retry is not None and retry.at_s > now_s:
                continue
            if retry is None and _is_same(self._stamps.get(key), stamp):
                continue
            self._stamps[key] = stamp
            (first if is_let_in(group) else then).append(key)
        return first + then

    def _news(self, state: ClusterState) -> Iterable[str]:
        """Groups that changed, have a new notice or wait for another try; all, if it is not known
        which changed, or others may be ours now.
        """
        changed = state.trails.jobs.since(self._followed.jobs)
        told = state.trails.told.since(self._followed.told)
        is_same_policy = self._followed.policy_seq == state.policy_seq
        self._followed = _Followed(state.trails.jobs.end, state.trails.told.end, state.policy_seq)
        if changed is None or told is None or not is_same_policy:
            return (*state.groups, *(self._stamps.keys() - state.groups.keys()))
        return dict.fromkeys((*changed, *told, *self._retries))

    def _until_retry_s(self) -> float | None:
        if not self._retries:
            return None
        return max(0.0, min(retry.at_s for retry in self._retries.values()) - time.monotonic())

    def _forget(self, key: str) -> None:
        self._stamps.pop(key, None)
        self._seen.pop(key, None)
        self._retries.pop(key, None)

    async def _bring_all(self, state: ClusterState, keys: list[str]) -> None:
        waiting = deque(keys)

        async def work(*, gives_way: bool) -> None:
            while waiting:
                group = state.groups.get(waiting[0])
                if gives_way and self._is_binding() and not (group and is_let_in(group)):
                    return
                key = waiting.popleft()
                if group is not None and group.fact is not None:
                    try:
                        await self._bring(state, key, group, job_of(state, key, group, group.fact))
                    except Exception as error:  # whatever it is: of this group, not of the others
                        self._seen.pop(key, None)
                        self._try_again(key, one_line(error))

        async with anyio.create_task_group() as workers:
            for number in range(min(WORKERS, len(keys))):
                workers.start_soon(lambda number=number: work(gives_way=number > 0))  # type: ignore[misc]

    async def _bring(self, state: ClusterState, key: str, group: Group, job: JobView) -> None:
        """Write what one group should say, if it does not."""
        trouble = ""
        for _ in range(CONFLICTS_MAX):
            seen = self._seen.get(key)
            if seen is None or _is_outdated(seen, group):
                answer = await self._client.get(path_of(job.namespace, job.name))
                if isinstance(answer, Ok):
                    seen = self._seen[key] = _decode(answer.body)
                elif isinstance(answer, Refused) and answer.status == 404:
                    return self._forget_seen(key)
                else:
                    trouble = answer.message
                    break
            if group.fact is None or seen.metadata.uid != group.fact.uid:
                return self._forget_seen(key)  # the log will tell
            change = change_of(
                group,
                job,
                seen,
                now=_now(),
                transition=f"allotment-{state.seq}",
                quota=quota_of(state, group),
                readers=self._readers,
            )
            if change is None:
                self._retries.pop(key, None)
                return None
            answer = await self._patch(job, seen, change)
            if isinstance(answer, Ok):
                self._seen[key] = _decode(answer.body)
                self._retries.pop(key, None)
                self.written += 1
                if change.told is not None:
                    await self.tell(job.namespace, job.name, seen.metadata.uid, change.told)
                return None
            if isinstance(answer, Refused) and answer.status == 404:
                return self._forget_seen(key)
            self._seen.pop(key, None)
            trouble = answer.message
            if not (isinstance(answer, Refused) and answer.status == 409):
                break
        self._try_again(key, trouble)
        return None

    def _forget_seen(self, key: str) -> None:
        self._seen.pop(key, None)
        self._retries.pop(key, None)

    def _try_again(self, key: str, trouble: str) -> None:
        known = self._retries.get(key)
        failures = 1 if known is None else known.failures + 1
        wait_s = min(RETRY_FIRST_S * 2.0 ** min(failures - 1, 16), RETRY_MAX_S)
        self._retries[key] = _Retry(failures, time.monotonic() + wait_s)
        self._say(key, trouble)

    async def _patch(self, job: JobView, seen: SeenGroup, change: Change) -> Ok | Refused | Unknown:
        metadata = {"uid": seen.metadata.uid, "resourceVersion": seen.metadata.resource_version}
        body = {"metadata": metadata, "status": change.status}
        path = f"{path_of(job.namespace, job.name)}/status"
        return await self._client.patch(path, body, MERGE_PATCH)

    async def tell(self, namespace: str, name: str, uid: str, told: Told) -> None:
        """An Event about a PodGroup. One that does not get through is counted."""
        event = pod_event(
            namespace=namespace,
            pod=name,
            uid=uid,
            kind="Warning" if told.kind == "Warning" else "Normal",
            reason=told.reason,
            action="Scheduling",
            note=self._readers.text(namespace, told.note),
            time_ns=time.time_ns(),
            unique=secrets.randbits(64),
            controller=SCHEDULER,
            instance=self._instance,
        )
        event["regarding"] |= {"apiVersion": API_VERSION, "kind": "PodGroup"}
        self.lost += isinstance(await create_event(self._client, event), Unknown)


def path_of(namespace: str, name: str) -> str:
    """The path of a PodGroup, names escaped."""
    place = f"namespaces/{quote(namespace, safe='')}/podgroups/{quote(name, safe='')}"
    return f"/apis/{API_VERSION}/{place}"


def is_ours(state: ClusterState, group: Group) -> bool:
    """Whether its pods are ours; without pods, whether we decided about it at its queue's gate."""
    if not group.members:
        return group.gate is not None or bool(group.admitted_seq)
    names = state.policy.scheduler_names
    return any(
        state.pods[uid].fact.scheduler in names for uid in group.members if uid in state.pods
    )


def is_let_in(group: Group) -> bool:
    """Whether a group passed the gate of its queue and does not say so yet."""
    return group.fact is not None and group.fact.phase in NOT_ADMITTED and bool(group.admitted_seq)


def _is_same(before: Stamp | None, now: Stamp) -> bool:
    return (
        before is not None and before[0] == now[0] and before[1] is now[1] and before[2] is now[2]
    )


def _is_outdated(seen: SeenGroup, group: Group) -> bool:
    """Whether another client changed a PodGroup's phase since we saw it."""
    fact = group.fact
    return (
        fact is not None
        and fact.rv > seen.metadata.version
        and fact.phase != (seen.said.phase or "")
    )


def _now() -> str:
    """A plain Time field: whole seconds."""
    return micro_time(time.time_ns())[:19] + "Z"
