"""Ask an allocation log from Python: in a notebook, a report, a test.

`open_log` opens one, a `Log` is asked, and an `AllotError` is raised for what cannot be answered.
Answers are the structs that `allot … -o json` prints; `msgspec.json.encode` writes the same JSON.
No question changes the log or a cluster.

Calls block, although a log is read asynchronously. A notebook runs an event loop of its own, in
which no second one may be started, and most of the time of an answer goes into folding the log,
which a loop does not speed up. So an open log has a thread with a loop, and calls wait for it.
"""

import os
import weakref
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, overload

from anyio.from_thread import BlockingPortal, start_blocking_portal

from allotment.adapters.service.moments import At, AtSequence, AtTime
from allotment.answers import local, objects, pods
from allotment.answers.fit import fit
from allotment.answers.folding import fold_at
from allotment.answers.kubeconfig import USUAL_NAMESPACE
from allotment.answers.manifests import documents_of
from allotment.answers.moments import parse
from allotment.answers.recorded import recorded_jobs, recorded_queues
from allotment.answers.source import DEFAULT_HOME, Origin, Source, open_source
from allotment.answers.usage import UsageDocument, measure
from allotment.core.errors import AllotError
from allotment.core.explain.causes.why import Whys
from allotment.core.explain.fitting import Fit
from allotment.core.explain.node import NodeExplanation
from allotment.core.explain.rows.life import PodExplanation
from allotment.core.explain.rows.pod_views import gang_views, pod_views
from allotment.core.explain.rows.schema import GangExplanation, QueueExplanation
from allotment.core.explain.rows.views import cards_of, node_views
from allotment.core.ledger.model import ClusterState
from allotment.core.replay.usage import NAMES, NAMESPACE, adds_up

if TYPE_CHECKING:  # what only these two questions need takes long to import
    from allotment.core.replay.replay import Report
    from allotment_lab.simulate.report import RunReport

__all__ = ["AllotError", "Log", "open_log"]

T = TypeVar("T")
Moment = str | int | datetime
Explanation = PodExplanation | GangExplanation | QueueExplanation | NodeExplanation


def open_log(where: str | Path | None = None) -> "Log":
    """Open a log: the file of `allot log -o jsonl`, a NATS URL, or the directory of a local mode
    that runs. Without any what `allot` would read: the server of ALLOT_NATS_URL, the local mode in
    ALLOT_HOME or ~/.allotment, the cluster of the kubeconfig.

    Raises `AllotError` saying what is not there.

    >>> with open_log("busy.jsonl") as log:
    ...     [node.name for node in log.get("nodes") if node.cards]
    ['gpu-01', 'gpu-02', 'gpu-03', 'gpu-04']
    """
    home = Path(os.environ.get("ALLOT_HOME") or DEFAULT_HOME).expanduser()
    origin = Origin(home, os.environ.get("ALLOT_NATS_URL") or None)
    if where is not None:
        path = Path(where).expanduser()
        if "://" in str(where):
            origin = Origin(home, nats=str(where))
        elif not path.is_dir():
            origin = Origin(home, file=path)
        elif local.addresses(path).nats:
            origin = Origin(path)
        else:
            raise AllotError(f"local mode is not running at {path}", "run: allot up --home DIR")
    with ExitStack() as stack:
        portal = stack.enter_context(start_blocking_portal())
        source = stack.enter_context(portal.wrap_async_context_manager(open_source(origin)))
        return Log(_Opened(origin, source, portal, stack.pop_all()), None)


class _Opened:
    """An open log, which all its moments share. Its thread ends when it is closed, or is used by
    nothing more, or with the process: Python would wait for ever for a loop that still runs then.
    """

    def __init__(
        self, origin: Origin, source: Source, portal: BlockingPortal, stack: ExitStack
    ) -> None:
        self.origin = origin
        self.source = source
        self.portal = portal
        self.close = weakref.finalize(self, stack.close)


class Log:
    """A log at a moment, or now. Every question folds the log from its beginning, or from the
    user's cache of a live one; now is when the question is asked, of a file its last record's time.

    A ``with`` closes it at all its moments; left open it lasts as long as it is used.

    >>> log = open_log("queues.jsonl")
    >>> log.explain("training", kind="queue").waiting[0].name
    'quota'
    """

    def __init__(self, opened: _Opened, at: At | None) -> None:
        self._opened = opened
        self._at = at

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self._opened.close()

    def at(self, moment: Moment) -> "Log":
        """The same log at another moment: a sequence, a datetime, or a text as after ``--at``
        (``"14:03"``, ``"-15m"``, RFC 3339). Raises `AllotError` for a text that is none.

        >>> with open_log("busy.jsonl") as log:
        ...     [(pod.name, pod.status) for pod in log.at(12).get("pods")]
        [('big', 'Reserved'), ('half', 'Bound'), ('pair', 'Reserved')]
        """
        now_ms = self._opened.source.now_ms()
        return Log(self._opened, _read(moment, now_ms, "at"))

    def get(self, kind: str) -> list[Any]:
        """All ``pods``, ``nodes``, ``cards``, ``queues``, ``gangs`` or ``jobs``, in the order of
        their names.

        >>> with open_log("busy.jsonl") as log:
        ...     [(pod.name, pod.cause) for pod in log.get("pods") if pod.status == "Pending"][:1]
        [('whole-more', 'NotEnoughGPUsOnNode')]
        """
        views = _LISTS.get(kind)
        if views is None:
            raise AllotError(f"{kind!r} is no kind of a list", f"one of {', '.join(_LISTS)}")
        return views(self._run(lambda source: fold_at(source, self._at)).state)

    @overload
    def explain(
        self, name: str, kind: Literal["pod"] = "pod", *, node: str | None = None
    ) -> PodExplanation: ...

    @overload
    def explain(self, name: str, kind: Literal["gang"]) -> GangExplanation: ...

    @overload
    def explain(self, name: str, kind: Literal["queue"]) -> QueueExplanation: ...

    @overload
    def explain(self, name: str, kind: Literal["node"]) -> NodeExplanation: ...

    def explain(self, name: str, kind: str = "pod", *, node: str | None = None) -> Explanation:
        """Why a pod or a gang (``NAMESPACE/NAME``, or a name in ``default``) runs or waits, what a
        queue may have, what a node takes and refuses. `node`: show also how a pod fares on each
        card of it. Raises `AllotError` for a name that is not in the log.

        >>> with open_log("busy.jsonl") as log:
        ...     why = log.explain("research/llama")
        >>> why.status.cause
        'InsufficientGPUMemory'
        >>> why.counterfactuals[0].text
        'also accept the model NVIDIA-GeForce-RTX-4090'
        """

        async def explained(source: Source) -> Explanation:
            space, bare = name.split("/", 1) if "/" in name else (USUAL_NAMESPACE, name)
            if kind == "pod":
                return await pods.explain(source, space, bare, self._at, node=node)
            folded = await fold_at(source, self._at)
            match kind:
                case "gang":
                    return objects.gang(source, folded, space, bare)
                case "queue":
                    return objects.queue(folded, name)
                case "node":
                    return await objects.node(source, folded, name)
                case _:
                    raise AllotError(f"{kind!r} is not explained", "one of pod, gang, queue, node")

        return self._run(explained)

    def fit(self, *manifests: str | Path | dict[str, Any], namespace: str = USUAL_NAMESPACE) -> Fit:
        """Whether pods of manifests would fit, where, and what would make the others fit; each is
        tried next to those before it. A manifest is a file or a dict; one that names no namespace
        has this one. Raises `AllotError` for manifests that make no pods.

        >>> cards = [{"resources": {"limits": {"nvidia.com/gpu": 2}}}]
        >>> spec = {"schedulerName": "volcano", "containers": cards}
        >>> pods = [{"kind": "Pod", "metadata": {"name": name}, "spec": spec} for name in "ab"]
        >>> with open_log("busy.jsonl") as log:
        ...     [(pod.name, pod.node, pod.cause) for pod in log.fit(*pods).pods]
        [('a', 'whole-01', ''), ('b', '', 'NotEnoughGPUsOnNode')]
        """
        given = [one if isinstance(one, dict) else str(one) for one in manifests]
        documents = documents_of(given, namespace)
        origin = self._opened.origin
        return self._run(lambda source: fit(source, origin, documents, self._at))

    def usage(self, since: Moment | None = None, *, by: str = NAMESPACE) -> UsageDocument:
        """What pods held from a moment on, by default since the log begins, added up by
        ``namespace``, ``queue``, ``node``, ``model``, or ``label=KEY``. Raises `AllotError` for
        something else, and for a moment after the end.

        >>> with open_log("busy.jsonl") as log:
        ...     [(used.name, used.pods) for used in log.usage().usage]
        [('default', 4), ('research', 1)]
        """
        if not adds_up(by):
            raise AllotError(
                f"usage is not added up by {by!r}", f"one of {', '.join(NAMES)}, label=KEY"
            )
        first = None if since is None else _read(since, self._opened.source.now_ms(), "since")
        return self._run(lambda source: measure(source, first, self._at, by))

    def replay(self, since: Moment | None = None, *, plain: bool = False) -> "Report":
        """Make every decision again, by default since the log begins, and compare bit for bit;
        `plain` by the plain rules, node by node. Raises `AllotError` for a moment after the end.

        >>> with open_log("busy.jsonl") as log:
        ...     report = log.replay()
        >>> report.decisions, report.different
        (3, 0)
        """
        from allotment.answers.replay import replayed

        first = None if since is None else _read(since, self._opened.source.now_ms(), "since")
        return self._run(lambda source: replayed(source, first, self._at, plain=plain)).report

    def simulate(self, *policies: str, seed: int = 42) -> "list[RunReport]":
        """What policies would have made of these pods on these nodes, in virtual time: names as
        after ``allot simulate --policy``, or files of a scheduler configuration; none is the log's
        own. Needs the extra `fast`. Raises `AllotError` for a policy that is none, and if the
        log's own does not reproduce the log.

        >>> with open_log("busy.jsonl") as log:
        ...     [(run.policy, run.placed) for run in log.simulate("recorded", "spread")]
        [('recorded', 5), ('spread', 5)]
        """
        from allotment.answers.simulate import simulate

        return self._run(lambda source: simulate(source, policies, self._at, seed=seed))

    def _run(self, ask: Callable[[Source], Awaitable[T]]) -> T:
        return self._opened.portal.call(ask, self._opened.source)


def _read(moment: Moment, now_ms: int, name: str) -> At:
    if isinstance(moment, int):
        return AtSequence(moment)
    if isinstance(moment, datetime):
        return AtTime(int(moment.timestamp() * 1000))
    return parse(moment, now_ms, name)


_LISTS: dict[str, Callable[[ClusterState], list[Any]]] = {
    "pods": lambda state: pod_views(state, Whys(state).of),
    "nodes": node_views,
    "cards": lambda state: [
        view for _, node in sorted(state.nodes.items()) for view in cards_of(state, node)
    ],
    "queues": recorded_queues,
    "gangs": gang_views,
    "jobs": lambda state: [row for row, _, _ in recorded_jobs(state)],
}
