"""Queues that open and close, and Commands, whoever they are for."""

from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest
from tests.contract.controller_scene import COMMANDS, JOB, QUEUE, QUEUES, Scene, cluster, state_of

pytestmark = pytest.mark.anyio


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    async with cluster(tmp_path) as made:
        yield made


async def test_queues_open_close_and_hold_jobs_back(scene: Scene) -> None:
    async with scene.controller():
        await scene.until(lambda: len(scene.store.list(QUEUES)[0]) == 2, "root and default")
        scene.apply(QUEUE)
        await scene.until(lambda: state_of(scene, "q") == "Open", "it opens")
        scene.apply(JOB.replace("minAvailable: 3", "queue: q"))
        await scene.runs(3)
        scene.command("CloseQueue", "q", "Queue")
        await scene.until(lambda: state_of(scene, "q") == "Closing", "it closes")
        scene.apply(JOB.replace("minAvailable: 3", "queue: q").replace("name: j}", "name: late}"))
        await scene.until(lambda: scene.phase("late") == "Pending", "the late one waits")
        assert "takes no new Jobs" in scene.job("late")["status"]["state"]["message"]
        scene.run_pods("Succeeded")
        await scene.until(lambda: state_of(scene, "q") == "Closed", "the last PodGroup is gone")
        scene.command("OpenQueue", "q", "Queue")
        await scene.until(lambda: len(scene.pods()) == 6, "the late one begins")
        scene.store.delete(QUEUES, "", "default")
        await scene.until(lambda: scene.store.find(QUEUES, "", "default"), "default is back")
        scene.command("CloseQueue", "default", "Queue")
        await scene.until(lambda: not scene.store.list(COMMANDS)[0], "the Command is taken")
        said = "CloseQueue is not done: queue 'default' is always open"
        await scene.until(lambda: scene.events("CommandDenied") == [said], "and refused")
        await scene.until(lambda: state_of(scene, "default") == "Open", "default is open")


@pytest.mark.parametrize("later_s", [0.1, 1.5])
async def test_a_command_may_be_seen_before_its_job(scene: Scene, later_s: float) -> None:
    """Also where the watch of Jobs is late by more than a second, as on a busy machine."""
    async with scene.controller():
        scene.command("AbortJob", "j")
        await anyio.sleep(later_s)
        scene.apply(JOB)
        await scene.until(lambda: scene.phase() == "Aborted", "it is aborted all the same")


async def test_a_command_that_comes_with_its_job_is_not_lost(scene: Scene) -> None:
    """It is seen while the Job has no phase yet."""
    async with scene.controller():
        scene.apply(JOB)
        scene.command("AbortJob", "j")
        await scene.until(lambda: scene.phase() == "Aborted", "it is aborted all the same")
        await scene.until(lambda: not scene.store.list(COMMANDS)[0], "the Command is done")


async def test_commands_for_nobody_go_away(scene: Scene) -> None:
    async with scene.controller():
        scene.command("AbortJob", "nobody")
        scene.command("AbortJob", "nobody", "Pod")
        await scene.until(lambda: not scene.store.list(COMMANDS)[0], "they are gone")
