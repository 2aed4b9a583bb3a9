"""The controller's queue of work, its caches, and what it reads of pods."""

from collections.abc import Callable
from random import Random
from typing import Any

import anyio
import msgspec
import pytest

from allotment.core.jobs.model import Job, Meta
from allotment_controller.cache import Cache
from allotment_controller.objects import PodObject, kept, members_of, seconds, shown
from allotment_controller.settings import ControllerSettings
from allotment_controller.state import Known
from allotment_controller.work import Again, Work
from tests.waiting import patience

pytestmark = pytest.mark.anyio


class Bench:
    """Work with a handler that can be told to fail or to wait."""

    def __init__(self) -> None:
        self.handled: list[str] = []
        self.at_once: dict[str, int] = {}
        self.at_once_max = 0
        self.failures: list[str] = []
        self.fails: dict[str, Exception] = {}
        self.work: Work[str] = Work(Random(1), self._failed)

    def _failed(self, key: str, why: Exception) -> None:
        self.failures.append(f"{key}: {why}")

    async def handle(self, key: str) -> None:
        self.at_once[key] = self.at_once.get(key, 0) + 1
        self.at_once_max = max(self.at_once_max, self.at_once[key])
        try:
            await anyio.sleep(0.01)
            self.handled.append(key)
            if error := self.fails.pop(key, None):
                raise error
        finally:
            self.at_once[key] -= 1

    async def until(self, holds: Callable[[], bool]) -> None:
        with patience():
            async with anyio.create_task_group() as group:
                group.start_soon(self.work.run, self.handle, 4)
                while not holds():  # noqa: ASYNC110 - counts only
                    await anyio.sleep(0.005)
                group.cancel_scope.cancel()


async def test_a_key_is_worked_on_once_however_often_it_was_added() -> None:
    bench = Bench()
    for _ in range(5):
        bench.work.add("a")
    bench.work.add("b")
    await bench.until(lambda: not len(bench.work))
    assert sorted(bench.handled) == ["a", "b"]


async def test_a_key_is_never_worked_on_twice_at_once_and_news_are_not_lost() -> None:
    bench = Bench()
    bench.work.add("a")

    def more() -> bool:
        if len(bench.handled) < 5 and bench.at_once.get("a"):
            bench.work.add("a")
        return len(bench.handled) >= 5 and not len(bench.work)

    await bench.until(more)
    assert bench.at_once_max == 1


async def test_what_failed_is_tried_again_and_a_defect_of_one_stops_no_other() -> None:
    bench = Bench()
    bench.fails = {"a": Again("not now"), "b": KeyError("x")}
    for key in "abc":
        bench.work.add(key)
    await bench.until(lambda: len(bench.handled) == 5)
    assert sorted(bench.handled) == ["a", "a", "b", "b", "c"]
    assert sorted(bench.failures) == ["a: not now", "b: 'x'"]
    assert bench.work.defects == 1


async def test_an_earlier_time_wins_over_a_later_one() -> None:
    bench = Bench()
    bench.work.add("a", 60.0)
    bench.work.add("a", 0.0)
    bench.work.add("a", 60.0)
    await bench.until(lambda: bench.handled == ["a"])
    assert len(bench.work) == 0


def made(version: int, uid: str = "u", name: str = "j") -> Job:
    metadata = {"namespace": "n", "name": name, "uid": uid, "resourceVersion": str(version)}
    return msgspec.convert({"metadata": metadata, "spec": {}}, Job)


def test_the_newer_version_counts_whoever_tells_it() -> None:
    cache: Cache[Job] = Cache()
    assert cache.observe(made(5))
    assert not cache.observe(made(4))
    assert not cache.observe(made(5))
    assert cache.observe(made(6))
    found = cache.get("n", "j")
    assert found is not None
    assert found.metadata.resource_version == "6"


def test_what_is_gone_does_not_come_back_by_a_late_answer() -> None:
    cache: Cache[Job] = Cache()
    cache.observe(made(5))
    assert cache.forget("n", "j", "other") is None
    assert cache.forget("n", "j", "u") is not None
    assert not cache.observe(made(4))
    assert cache.observe(made(3, uid="anew"))
    assert len(cache) == 1


POD: dict[str, Any] = {
    "metadata": {
        "name": "j-worker-2",
        "namespace": "n",
        "uid": "p",
        "resourceVersion": "1",
        "creationTimestamp": "2026-11-20T14:00:00Z",
        "annotations": {
            "volcano.sh/task-spec": "worker",
            "volcano.sh/task-index": "2",
            "volcano.sh/job-version": "3",
            "scheduling.k8s.io/group-name": "g",
        },
        "ownerReferences": [
            {
                "apiVersion": "batch.volcano.sh/v1alpha1",
                "kind": "Job",
                "name": "j",
                "uid": "u",
                "controller": True,
            }
        ],
    },
    "spec": {"nodeName": "v"},
    "status": {
        "phase": "Failed",
        "containerStatuses": [
            {"restartCount": 2, "state": {"terminated": {"exitCode": 0}}},
            {
                "restartCount": 1,
                "state": {"terminated": {"exitCode": 137, "finishedAt": "2026-11-20T14:00:09Z"}},
            },
        ],
    },
}


def pod(**status: object) -> PodObject:
    body = {**POD, "status": {**POD["status"], **status}}
    return msgspec.json.decode(msgspec.json.encode(body), type=PodObject)


def test_what_is_read_of_a_pod() -> None:
    found = kept(pod())
    view = found.view
    assert (view.role, view.index, view.version, view.phase) == ("worker", 2, 3, "Failed")
    assert (view.exit_code, view.restarts, view.is_placed) == (137, 3, True)
    assert view.changed_s - view.created_s == 9
    assert (found.job_uid, found.job_name, found.group) == ("u", "j", "g")
    odd = msgspec.json.decode(b'{"metadata": {"name": "x"}, "status": {}}', type=PodObject)
    assert (kept(odd).view.phase, kept(odd).job_uid) == ("Pending", "")


def test_pods_are_filed_by_job_and_by_group() -> None:
    known = Known()
    first = kept(pod())
    known.observe_pod(first)
    assert [p.view.name for p in known.pods_of_job("u")] == ["j-worker-2"]
    assert [p.view.name for p in known.pods_of_group("n", "g")] == ["j-worker-2"]
    metadata = msgspec.structs.replace(first.metadata, resource_version="2", annotations=None)
    known.observe_pod(msgspec.structs.replace(first, metadata=metadata))
    assert known.pods_of_group("n", "g") == []
    assert known.forget_pod("n", "j-worker-2", "p") is not None
    assert known.pods_of_job("u") == []


def test_members_by_what_they_do() -> None:
    phases = ("Running", "Pending", "Succeeded", "Failed")
    members = members_of([kept(pod(phase=phase)) for phase in phases])
    counts = (members.running, members.bound, members.succeeded, members.failed)
    assert counts == (1, 1, 1, 1)


@pytest.mark.parametrize("text", [None, "", "soon"])
def test_times_that_are_none(text: str | None) -> None:
    assert seconds(text) == 0


def test_times() -> None:
    assert shown(seconds("2026-11-20T14:00:00Z")) == "2026-11-20T14:00:00Z"
    assert seconds("2026-11-20T15:00:00+01:00") == seconds("2026-11-20T14:00:00Z")


def test_the_scheduler_of_jobs_that_name_none() -> None:
    assert ControllerSettings().default_scheduler == "allotment"
    names = ("allotment", "volcano")
    assert ControllerSettings(scheduler_names=names).default_scheduler == "volcano"


def test_a_meta_without_anything() -> None:
    assert Meta().controller() is None
    assert Meta().annotation("x") == ""


async def test_an_owner_with_much_work_holds_up_no_other() -> None:
    """Owners take turns, whoever came first, and one never has all workers."""
    handled: list[str] = []
    busy = 0
    release = anyio.Event()

    async def handle(key: str) -> None:
        nonlocal busy
        handled.append(key)
        if key.startswith("big"):
            busy += 1
            assert busy <= 2, "half of the workers"
            await release.wait()
            busy -= 1

    def failed(key: str, why: Exception) -> None:
        raise AssertionError((key, why))

    work: Work[str] = Work(Random(1), failed, lambda key: key.partition("/")[0])
    for number in range(1000):
        work.add(f"big/{number}")
    for number in range(3):
        work.add(f"small/{number}")
    with patience():
        async with anyio.create_task_group() as group:
            group.start_soon(work.run, handle, 4)
            while sum(key.startswith("small") for key in handled) < 3:  # noqa: ASYNC110
                await anyio.sleep(0.005)
            assert sum(key.startswith("big") for key in handled) == 2
            release.set()
            while len(handled) < 1003:  # noqa: ASYNC110 - counts only
                await anyio.sleep(0.005)
            group.cancel_scope.cancel()
    assert [key for key in handled if key.startswith("big")] == [f"big/{n}" for n in range(1000)]
