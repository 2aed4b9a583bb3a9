"""The lifecycles of pods on fake nodes: admitted, started, ended, stopped, or orphaned.

    bound ──line──▶ admitted ──start-delay──▶ Running ──run-duration──▶ Succeeded
             │          └─ refused ─▶ Failed     │
             └── deleted at any time ────────────┴──stop-delay──▶ gone
    node gone ──orphan delay──▶ pods gone (what the pod garbage collector does)

Pods of a node are admitted one after the other (`admissions`); they start side by side. Every other
step is one timer of one pod; an event about a pod costs the same however many there are.
"""

import json
from collections.abc import Callable, Mapping
from random import Random
from typing import Any, NamedTuple, TypeVar

from allotment_local.apiserver.resources import PODS
from allotment_local.apiserver.store import Store
from allotment_local.nodes import statuses
from allotment_local.nodes.admissions import Admissions, Heard
from allotment_local.nodes.annotations import (
    ENV,
    EXITS,
    FAULT,
    RUN_DURATION,
    START_DELAY,
    STOP_DELAY,
    Mistake,
    duration_s,
    pod_fault,
)
from allotment_local.nodes.books import Books
from allotment_local.nodes.kubelet import Kubelet, Rejection
from allotment_local.nodes.pending import Pending
from allotment_local.nodes.reports import Reports
from allotment_local.nodes.timers import Timer, Timers

JsonObject = dict[str, Any]
_D = TypeVar("_D", float, None)
_ENDED = ("Succeeded", "Failed")
EXITS_AFTER_S = 0.1
"""So soon a container ends that does so at once."""


class Delays(NamedTuple):
    """How long things take unless an annotation says otherwise, in seconds."""

    admit_s: float = 0.0
    allocate_s: float = 0.0
    start_s: float = 0.0
    stop_s: float = 0.05
    orphan_s: float = 5.0
    """How long pods of a node that is gone stay."""
    lease_s: float = 10.0
    status_s: float = 300.0


class _Run:
    """One pod on a node."""

    __slots__ = ("duration", "name", "namespace", "node", "started_s", "stopping", "timer", "uid")

    def __init__(self, uid: str, namespace: str, name: str, node: str) -> None:
        self.uid = uid
        self.namespace = namespace
        self.name = name
        self.node = node
        self.timer: Timer | None = None
        self.stopping = False
        self.started_s: float | None = None
        self.duration: str | None = None


class PodLifecycles:
    """All pods that are bound to a node."""

    def __init__(
        self,
        store: Store,
        timers: Timers,
        pending: Pending,
        kubelets: Mapping[str, Kubelet],
        books: Books,
        reports: Reports,
        delays: Delays,
        dice: Random,
    ) -> None:
        self._store = store
        self._timers = timers
        self._pending = pending
        self._kubelets = kubelets
        self._books = books
        self._reports = reports
        self._delays = delays
        self._admissions = Admissions(
            timers, kubelets, self._admitted, admit_s=delays.admit_s, dice=dice
        )
        self._runs: dict[str, _Run] = {}
        self._by_node: dict[str, set[str]] = {}
        self._addresses = 0

    # What happens to pods and nodes

    def observe(self, type_: str, pod: JsonObject) -> None:
        """A pod was created, changed or removed."""
        metadata = pod["metadata"]
        uid = metadata["uid"]
        if type_ == "DELETED":
            self._forget(uid)
            return
        self._pending.observe(pod)
        node = pod["spec"].get("nodeName")
        if not node:
            return
        run = self._runs.get(uid)
        if run is None:
            run = _Run(uid, metadata["namespace"], metadata["name"], node)
            self._runs[uid] = run
            self._by_node.setdefault(node, set()).add(uid)
            self._begin(run, pod)
        elif self._is_deaf(node):
            return
        elif "deletionTimestamp" in metadata:
            self._begin_stop(run, pod)
        elif (pod.get("status") or {}).get("phase") in _ENDED:
            self._release(run)
        elif run.started_s is not None and _annotation(pod, RUN_DURATION) != run.duration:
            self._plan_end(run, pod)

    def node_added(self, node: str) -> None:
        """A kubelet is there for the node: also for pods that were bound to it before."""
        self.listed(node)

    def listed(self, node: str) -> None:
        """The node's kubelet has listed its pods afresh."""
        heard: list[Heard] = []
        for uid in sorted(self._by_node.get(node, ())):
            run = self._runs[uid]
            pod = self._current(run)
            if pod is None or self._admissions.is_in_line(uid):
                continue
            if not _waits(pod):
                self._begin(run, pod)
            elif not self._kubelets[node].has(uid):
                heard.append(self._hear(run, pod))
        self._admissions.join_all(heard)

    def node_gone(self, node: str) -> None:
        self._admissions.close(node)
        for uid in sorted(self._by_node.get(node, ())):
            self._orphan(self._runs[uid])

    # The steps of one lifecycle

    def _begin(self, run: _Run, pod: JsonObject) -> None:
        kubelet = self._kubelets.get(run.node)
        phase = (pod.get("status") or {}).get("phase")
        if kubelet is not None and kubelet.is_deaf:
            return
        if "deletionTimestamp" in pod["metadata"]:
            self._begin_stop(run, pod)
        elif kubelet is None:
            self._orphan(run)
        elif phase == "Pending":
            self._admissions.join(self._hear(run, pod))
        elif phase == "Running":
            kubelet.charge(pod)
            self._plan_end(run, pod)
        elif phase in _ENDED:
            self._release(run)

    def _hear(self, run: _Run, pod: JsonObject) -> Heard:
        if run.timer is not None:  # the garbage collector spares a pod whose node is back
            run.timer.cancel()
        fault = _annotation(pod, FAULT)
        if fault is not None and isinstance(mistake := pod_fault(fault), Mistake):
            self._reports.mistake(pod, run.node, mistake)
        return Heard(run.node, run.uid, pod)

    def _admitted(self, heard: Heard, rejection: Rejection | None) -> None:
        """The kubelet gave a pod its devices, or would not have it."""
        run = self._runs.get(heard.uid)
        pod = None if run is None else self._current(run)
        if run is None or pod is None:  # deleted by force while it was in the line
            self._kubelets[heard.node].release(heard.uid)
            self._books.take_back(heard.uid)
            return
        if rejection is not None:
            self._reports.warn(pod, run.node, rejection.reason, rejection.message)
            self._set_status(run, statuses.rejected(*rejection, self._store.now()))
        if run.stopping:
            self._plan_stop(run, pod)
        elif rejection is None:
            delay_s = self._duration_s(pod, START_DELAY, self._delays.start_s)
            self._next(run, delay_s, self._start)

    def _start(self, run: _Run) -> None:
        pod, kubelet = self._current(run), self._kubelets.get(run.node)
        if pod is None or kubelet is None:
            return
        now = self._store.now()
        ip = self._new_address()
        self._set_status(
            run,
            statuses.running(pod, ip=ip, host_ip=kubelet.host_ip, started=now, now=now),
            _env_annotation(kubelet.env_of(run.uid)),
        )
        if run.stopping:
            return
        if _annotation(pod, FAULT) == EXITS or kubelet.exits & self._books.cards_of(run.uid):
            self._next(run, EXITS_AFTER_S, self._fail)
        else:
            self._plan_end(run, pod)

    def _fail(self, run: _Run) -> None:
        pod = self._current(run)
        if pod is not None:
            self._set_status(run, statuses.failed(pod, self._store.now()))

    def _plan_end(self, run: _Run, pod: JsonObject) -> None:
        """The duration counts from the start, also when it was given or changed later."""
        now_s = self._timers.now()
        run.started_s = now_s if run.started_s is None else run.started_s
        run.duration = _annotation(pod, RUN_DURATION)
        if run.timer is not None:
            run.timer.cancel()
        lasting_s = self._duration_s(pod, RUN_DURATION, None)
        if lasting_s is not None:
            self._next(run, max(0.0, run.started_s + lasting_s - now_s), self._end)

    def _end(self, run: _Run) -> None:
        pod = self._current(run)
        if pod is not None:
            self._set_status(run, statuses.succeeded(pod, self._store.now()))

    def _begin_stop(self, run: _Run, pod: JsonObject) -> None:
        if run.stopping:
            return
        run.stopping = True
        if not self._admissions.is_in_line(run.uid):
            self._plan_stop(run, pod)

    def _plan_stop(self, run: _Run, pod: JsonObject) -> None:
        grace_s = float(pod["metadata"].get("deletionGracePeriodSeconds") or 0)
        stop_s = self._duration_s(pod, STOP_DELAY, self._delays.stop_s)
        self._next(run, min(stop_s, grace_s), self._stop)

    def _stop(self, run: _Run) -> None:
        self._release(run)
        if self._current(run) is not None:
            self._store.delete(PODS, run.namespace, run.name, grace_seconds=0, uid=run.uid)

    def _orphan(self, run: _Run) -> None:
        self._next(run, self._delays.orphan_s, self._stop)

    def _release(self, run: _Run) -> None:
        if run.timer is not None and not run.stopping:
            run.timer.cancel()
        kubelet = self._kubelets.get(run.node)
        if kubelet is not None:
            kubelet.release(run.uid)
        self._books.take_back(run.uid)

    def _forget(self, uid: str) -> None:
        self._pending.forget(uid)
        self._reports.forget(uid)
        run = self._runs.pop(uid, None)
        if run is None:
            return
        self._release(run)
        if run.timer is not None:
            run.timer.cancel()
        there = self._by_node[run.node]
        there.discard(uid)
        if not there:
            del self._by_node[run.node]

    # Small things

    def _next(self, run: _Run, delay_s: float, step: Callable[[_Run], None]) -> None:
        """The pod's next step; it replaces the one that was planned."""
        if run.timer is not None:
            run.timer.cancel()
        run.timer = self._timers.after(delay_s, lambda: step(run))

    def _is_deaf(self, node: str) -> bool:
        kubelet = self._kubelets.get(node)
        return kubelet is not None and kubelet.is_deaf

    def _current(self, run: _Run) -> JsonObject | None:
        """The pod as it is now; None when it is gone, or another one has its name."""
        pod = self._store.find(PODS, run.namespace, run.name)
        return pod if pod is not None and pod["metadata"]["uid"] == run.uid else None

    def _set_status(self, run: _Run, status: JsonObject, more: JsonObject | None = None) -> None:
        """One write, also for annotations that are written with it."""
        patch = {"status": status, **(more or {})}
        self._store.merge_patch(PODS, run.namespace, run.name, patch, subresource="status")

    def _duration_s(self, pod: JsonObject, key: str, default: _D) -> float | _D:
        text = _annotation(pod, key)
        if text is None:
            return default
        lasting_s = duration_s(key, text)
        if isinstance(lasting_s, Mistake):
            self._reports.mistake(pod, pod["spec"]["nodeName"], lasting_s)
            return default
        return lasting_s

    def _new_address(self) -> str:
        """Addresses of 10.64.0.0/10, one after the other, starting over after four million."""
        self._addresses += 1
        number = self._addresses % (1 << 22)
        return f"10.{64 + (number >> 16)}.{number >> 8 & 255}.{number & 255}"


def _waits(pod: JsonObject) -> bool:
    """Whether a kubelet that lists this pod has still to admit it."""
    is_pending = (pod.get("status") or {}).get("phase") == "Pending"
    return is_pending and "deletionTimestamp" not in pod["metadata"]


def _annotation(pod: JsonObject, key: str) -> str | None:
    found: str | None = (pod["metadata"].get("annotations") or {}).get(key)
    return found


def _env_annotation(envs: Mapping[str, Mapping[str, str]]) -> JsonObject:
    """What the containers' environment got of device plugins, for people to look at."""
    if not envs:
        return {}
    shown = {name: dict(env) for name, env in envs.items()}
    return {"metadata": {"annotations": {ENV: json.dumps(shown)}}}
