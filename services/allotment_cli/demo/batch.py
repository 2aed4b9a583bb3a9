"""The batch part of `allot demo`: Jobs that run whole, a gang that cannot, a quota that rejects.

It waits until everything that it shows is true: a Job runs whole if one decision placed all its
workers and each knows its index, and a waiting gang holds nothing.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import anyio
import msgspec

from allotment.adapters.kube.objects import ObjectMeta
from allotment.answers.cluster import Access
from allotment.answers.folding import Folded, fold
from allotment.answers.objects import group_key
from allotment.answers.recorded import JobRow, QueueRow
from allotment.answers.source import Origin, Source
from allotment.core.errors import AllotError
from allotment.core.explain.gang import explain_gang
from allotment.core.explain.queue import explain_queue
from allotment.core.explain.rows.schema import GangExplanation, QueueExplanation
from allotment.core.jobs.keys import DEFAULT_QUEUE
from allotment.core.jobs.plugins.env import INDEX
from allotment.core.ledger.model import ClusterState
from allotment.core.logport import Record
from allotment.core.reasons import QUEUE_QUOTA
from allotment_cli.act.job import job_lines, job_row, read_jobs
from allotment_cli.act.queue import queue_list_lines, read_queues
from allotment_cli.demo.apply import apply_examples
from allotment_cli.demo.watch import POLL_S, held_text, upheld
from allotment_cli.options.source import open_cluster, open_source
from allotment_cli.read.explain_gang import gang_lines
from allotment_cli.read.explain_queue import queue_lines
from allotment_cli.show.output import table
from allotment_proto.events import Decided, Envelope, Placement

DIRECTORY = "batch"
FILES = ("04-distributed", "05-three-workers", "06-quota-refuses", "09-gang-too-big")
NAMESPACE = "default"
WHOLE = {"distributed": 4, "three-workers": 3}
"""Jobs that run → how many workers they have and need."""
TOO_BIG, FIT, NEEDED = "too-big", 2, 4
OVER_QUOTA, SMALL_QUEUE = "over-quota", "small"
SETTLED_WITHIN_S = 30.0


class Act(NamedTuple):
    """A part of the demo: what it showed, in a few lines and as screens."""

    results: list[str]
    sections: list[tuple[str, list[str]]]
    """Headings, and the lines below them."""


class _Env(msgspec.Struct):
    name: str
    value: str = ""


class _Container(msgspec.Struct):
    env: list[_Env] = []


class _Spec(msgspec.Struct):
    containers: list[_Container]


class _Pod(msgspec.Struct):
    """A pod, as far as its index goes."""

    metadata: ObjectMeta
    spec: _Spec

    @property
    def index(self) -> str:
        env = self.spec.containers[0].env
        return next((each.value for each in env if each.name == INDEX), "")


class Scene(NamedTuple):
    """Log and API server at about one moment."""

    folded: Folded
    placements: dict[str, Placement]
    decisions: dict[str, tuple[int, frozenset[str]]]
    """Pod's uid → the decision that placed it, and the pods placed with it or not at all."""
    indexes: dict[str, str]
    jobs: list[JobRow]
    queues: list[QueueRow]

    @property
    def state(self) -> ClusterState:
        return self.folded.state

    def gang(self, job: str) -> GangExplanation:
        key = group_key(self.state, NAMESPACE, job)
        return explain_gang(self.state, key, self.folded.time_ms)

    def workers(self, job: str) -> list[str]:
        """Uids of a Job's pods, by name."""
        group = self.state.groups.get(group_key(self.state, NAMESPACE, job))
        found = () if group is None else group.members
        return sorted(found, key=lambda uid: self.state.pods[uid].fact.name)


async def run(origin: Origin, kubeconfig: Path, examples: Path) -> Act:
    """Run the batch examples; returns what they show, once it is as expected.

    Raises `AllotError` naming what is not as expected after `SETTLED_WITHIN_S`.
    """
    await apply_examples(kubeconfig, [examples / DIRECTORY / f"{name}.yaml" for name in FILES])
    missing = ["nothing was read"]
    async with open_source(origin) as source:
        with anyio.move_on_after(SETTLED_WITHIN_S):
            while True:
                try:
                    scene = await _look(source, Access(origin.home, kubeconfig))
                    missing = list(missing_of(scene))
                except AllotError as error:  # what is asked about may not be there yet
                    missing = [error.message]
                if not missing:
                    return Act(_results(scene), _sections(scene))
                await anyio.sleep(POLL_S)
    raise AllotError(f"not reached within {SETTLED_WITHIN_S:g} s: {'; '.join(missing)}")


async def _look(source: Source, access: Access) -> Scene:
    async with open_cluster(access) as cluster:
        pods = await cluster.list(f"/api/v1/namespaces/{NAMESPACE}/pods", "pods", _Pod)
    jobs = [job_row(job) for job in await read_jobs(access, NAMESPACE)]
    queues = await read_queues(access)
    placements: dict[str, Placement] = {}
    decisions: dict[str, tuple[int, frozenset[str]]] = {}

    def observe(record: Record, envelope: Envelope, state: ClusterState) -> None:
        placements.update(upheld(record, envelope, state))
        for event in envelope.events:
            if isinstance(event, Decided):
                for whole in map(frozenset, event.wholes):
                    decisions.update(dict.fromkeys(whole, (record.seq, whole)))

    folded = await fold(source, None, observe)
    indexes = {pod.metadata.uid: pod.index for pod in pods}
    return Scene(folded, placements, decisions, indexes, jobs, queues)


def missing_of(scene: Scene) -> Iterator[str]:
    """What is not as the examples expect, in words."""
    rows = {row.name: row for row in scene.jobs}
    for job, number in WHOLE.items():
        uids = scene.workers(job)
        running = sum(scene.state.pods[uid].fact.phase == "Running" for uid in uids)
        if running != number or rows[job].running != number or rows[job].phase != "Running":
            yield f"{running} of {number} workers of {job} run, its Job is {rows[job].phase}"
        if any(scene.decisions.get(uid, (0, None))[1] != frozenset(uids) for uid in uids):
            yield f"{job} was not placed whole by one decision"
        if [scene.indexes.get(uid) for uid in uids] != [str(index) for index in range(number)]:
            yield f"the workers of {job} do not have the indexes 0 to {number - 1} as {INDEX}"
    status = scene.gang(TOO_BIG).status
    if (status.phase, status.together, status.wanted) != ("Waiting", FIT, NEEDED):
        yield f"{TOO_BIG} is {status.phase}, {status.together} of {status.wanted} fit together"
    if any(scene.state.pods[uid].allocation for uid in scene.workers(TOO_BIG)):
        yield f"{TOO_BIG} holds devices and does not run"
    yield from _missing_of_quota(scene, rows)


def _missing_of_quota(scene: Scene, rows: dict[str, JobRow]) -> Iterator[str]:
    queue = _small(scene)
    reasons = [group.reason.code for group in queue.waiting if group.reason is not None]
    if reasons != [QUEUE_QUOTA] or rows[OVER_QUOTA].phase != "Pending":
        yield f"queue {SMALL_QUEUE} rejects no pod for its quota ({', '.join(reasons) or 'none'})"
    if scene.workers(OVER_QUOTA):
        yield f"{OVER_QUOTA} got pods though its queue has no room for them"
    counts = {row.name: (row.pending, row.running) for row in scene.queues}
    if counts.get(SMALL_QUEUE) != (1, 0) or counts[DEFAULT_QUEUE][1] < len(WHOLE):
        yield f"the queues count other PodGroups than there are: {counts}"


def _small(scene: Scene) -> QueueExplanation:
    if SMALL_QUEUE not in scene.state.queues:
        raise AllotError(f"queue {SMALL_QUEUE} is not in the log")
    return explain_queue(scene.state, SMALL_QUEUE, scene.folded.time_ms)


def _results(scene: Scene) -> list[str]:
    jobs = " and ".join(f"{job} ({number} pods)" for job, number in WHOLE.items())
    return [
        f"Jobs {jobs}: each placed whole by one decision.",
        f"Job {TOO_BIG} waits: {FIT} of its {NEEDED} pods fit together.",
        f"Job {OVER_QUOTA} waits: the quota of queue {SMALL_QUEUE} is too small for it.",
    ]


def _sections(scene: Scene) -> list[tuple[str, list[str]]]:
    names = " and ".join(WHOLE)
    return [
        (f"Jobs that run whole: {names}", _worker_lines(scene)),
        (f"allot explain gang {NAMESPACE}/{TOO_BIG}", gang_lines(scene.gang(TOO_BIG))),
        (f"allot explain queue {SMALL_QUEUE}", queue_lines(_small(scene))),
        ("allot job list", job_lines(scene.jobs, with_namespace=False)),
        ("allot queue list", queue_list_lines(scene.queues)),
    ]


def _worker_lines(scene: Scene) -> list[str]:
    rows = []
    for job in WHOLE:
        for uid in scene.workers(job):
            placement = scene.placements[uid]
            held = held_text(scene.state, placement)
            decision, index = f"d-{scene.decisions[uid][0]}", scene.indexes[uid]
            rows.append([f"{NAMESPACE}/{placement.name}", decision, index, placement.node, *held])
    headers = ("POD", "DECISION", INDEX, "NODE", "CARDS", "MEMORY", "CORES")
    return table(headers, rows, right=(INDEX,))
