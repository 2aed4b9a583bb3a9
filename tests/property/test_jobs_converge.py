"""A Job in a small world that goes wrong: pods fail and vanish, the controller dies midway.

Safety holds after every step: a seat has one pod, a Job never more pods than replicas, never more
restarts than it may. And when the faults end the Job comes to rest: all its pods run, or it is over
and nothing of it lives.
"""

from collections.abc import Callable
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from allotment.core.jobs import groups
from allotment.core.jobs.model import Job, JobStatus, PodGroup, PodView
from allotment.core.jobs.policies import Happened
from allotment.core.jobs.status import Moment
from allotment.core.jobs.sync import Look, Plan, plan
from tests.unit.jobs_parts import job, task

STEPS_MAX = 60
WORKING = ("Pending", "Running")
MAX_RETRY = 3


class World:
    """An API server, a scheduler and nodes, as far as one Job sees them."""

    def __init__(self, of: Job) -> None:
        self.job = of
        self.pods: dict[str, PodView] = {}
        self.group: PodGroup | None = None
        self.happened: list[Happened] = []
        self.now_s = 1_000
        self._uids = 0

    def look(self, command: str = "", steps: int = 99) -> Plan:
        """One look; its plan is carried out as far as `steps` go, as by a controller that dies."""
        now = Moment(self.now_s, f"t{self.now_s}")
        made = plan(
            Look(
                job=self.job,
                pods=tuple(self.pods[name] for name in sorted(self.pods)),
                group=self.group,
                now=now,
                happened=tuple(self.happened),
                command=command,
            ),
            {},
        )
        writes: list[Callable[[Plan], None]] = [
            *(self._write_status, self._delete_group, self._end),
            *(self._create_group, self._create),
        ]
        for write in writes[:steps]:
            write(made)
        self.happened = list(made.remember) if steps >= len(writes) else []
        return made

    def _write_status(self, made: Plan) -> None:
        told = merged(msgspec.to_builtins(self.job.status), made.status)
        self.job = msgspec.structs.replace(self.job, status=msgspec.convert(told, JobStatus))

    def _delete_group(self, made: Plan) -> None:
        if made.delete_group:
            self.group = None

    def _end(self, made: Plan) -> None:
        for pod in made.end:
            assert self.pods[pod.name].uid == pod.uid
            self.pods[pod.name] = msgspec.structs.replace(pod, is_marked=True, is_deleting=True)

    def _create_group(self, made: Plan) -> None:
        if made.create_group:
            assert self.group is None, "the old PodGroup is still there"
            body = groups.of_job(self.job, {})
            body["status"] = {"phase": "Pending"}
            self.group = msgspec.convert(body, PodGroup)

    def _create(self, made: Plan) -> None:
        for seat in made.create:
            name = f"j-{seat.role}-{seat.index}"
            assert name not in self.pods, "two pods for one seat"
            assert self.group is not None
            assert self.group.status.phase not in ("", "Pending")
            self._uids += 1
            self.pods[name] = PodView(
                *(name, f"uid-{self._uids}", seat.role, seat.index, self.job.version),
                created_s=self.now_s,
            )

    # What the others do

    def admit(self) -> None:
        if self.group is not None and self.group.status.phase == "Pending":
            self.group.status.phase = "Inqueue"

    def turn(self, name: str, **fields: Any) -> None:
        pod = self.pods.get(name)
        if pod is not None and not pod.is_deleting and not pod.is_finished:
            self.pods[name] = msgspec.structs.replace(pod, changed_s=self.now_s, **fields)

    def evict(self, name: str) -> None:
        pod = self.pods.pop(name, None)
        if pod is not None and not pod.is_marked:
            lost = Happened("PodEvicted", pod.role, name, 0, pod.version, self.now_s)
            self.happened.append(lost)

    def reap(self) -> None:
        """Pods that are being deleted are gone."""
        self.pods = {name: pod for name, pod in self.pods.items() if not pod.is_deleting}

    def settle(self) -> None:
        """Everybody does the right thing until nothing changes."""
        for _ in range(STEPS_MAX):
            before = (self.job, dict(self.pods), msgspec.to_builtins(self.group))
            self.now_s += 1_000
            self.look()
            self.admit()
            self.reap()
            for name in list(self.pods):
                if self.pods[name].phase == "Pending":
                    self.turn(name, phase="Running", is_ready=True)
            self.check()
            if before == (self.job, dict(self.pods), msgspec.to_builtins(self.group)):
                return
        raise AssertionError(f"no rest after {STEPS_MAX} steps, in {self.job.phase}")

    def check(self) -> None:
        assert self.job.retry_count <= MAX_RETRY
        assert all(pod.version <= self.job.version for pod in self.pods.values())
        replicas = {role.name: role.replicas for role in self.job.spec.roles}
        alive = [pod for pod in self.pods.values() if pod.is_alive and not pod.is_deleting]
        assert len({(pod.role, pod.index) for pod in self.pods.values()}) == len(self.pods)
        assert len(alive) <= sum(replicas.values()) + 3  # that a scale-down has yet to take away


def merged(old: Any, patch: Any) -> Any:
    """RFC 7386."""
    if not isinstance(patch, dict):
        return patch
    found = dict(old) if isinstance(old, dict) else {}
    for name, value in patch.items():
        if value is None:
            found.pop(name, None)
        else:
            found[name] = merged(found.get(name), value)
    return found


NAMES = [f"j-{role}-{index}" for role in ("ps", "worker") for index in range(3)]
ACTIONS = ("RestartJob", "RestartTask", "RestartPod", "AbortJob", "CompleteJob", "TerminateJob")
EVENTS = ("PodFailed", "PodEvicted", "TaskCompleted", "*")
STEPS = st.one_of(
    st.tuples(st.just("look"), st.integers(0, 5)),
    st.tuples(st.just("command"), st.sampled_from([*ACTIONS[:1], "AbortJob", "ResumeJob"])),
    st.tuples(st.just("run"), st.sampled_from(NAMES)),
    st.tuples(st.just("fail"), st.sampled_from(NAMES)),
    st.tuples(st.just("succeed"), st.sampled_from(NAMES)),
    st.tuples(st.just("evict"), st.sampled_from(NAMES)),
    st.tuples(st.just("scale"), st.integers(1, 3)),
    st.tuples(st.sampled_from(["admit", "reap"]), st.none()),
)
POLICIES = st.lists(
    st.fixed_dictionaries({"event": st.sampled_from(EVENTS), "action": st.sampled_from(ACTIONS)}),
    max_size=2,
)


def step(world: World, what: str, more: Any) -> None:
    world.now_s += 1
    match what:
        case "look":
            world.look(steps=more)
        case "command":
            world.look(command=more)
        case "run":
            world.turn(more, phase="Running", is_ready=True)
        case "fail":
            world.turn(more, phase="Failed", exit_code=1)
        case "succeed":
            world.turn(more, phase="Succeeded")
        case "evict":
            world.evict(more)
        case "scale":
            ps, worker = world.job.spec.roles
            worker = msgspec.structs.replace(worker, replicas=more, min_available=1)
            spec = msgspec.structs.replace(world.job.spec, tasks=[ps, worker])
            spec.min_available = min(spec.minimum, spec.replicas)
            world.job = msgspec.structs.replace(world.job, spec=spec)
        case "admit":
            world.admit()
        case _:
            world.reap()
    world.check()


@settings(max_examples=300, deadline=None)
@given(st.lists(STEPS, max_size=40), POLICIES, st.integers(1, 3), st.none() | st.integers(1, 2))
def test_a_job_keeps_its_rules_and_comes_to_rest(
    steps: list[tuple[str, Any]], policies: list[Any], least: int, success: int | None
) -> None:
    roles = (task("ps", 1), task("worker", 2, minAvailable=1))
    amounts = {"minAvailable": least, "maxRetry": MAX_RETRY, "minSuccess": success}
    fields: dict[str, Any] = {**amounts, "policies": policies}
    world = World(job(*roles, **fields))
    for what, more in steps:
        step(world, what, more)
    world.settle()
    alive = [pod for pod in world.pods.values() if pod.is_alive]
    if world.job.phase in WORKING:
        replicas = sum(role.replicas for role in world.job.spec.roles)
        assert len(world.pods) == replicas, "every seat has its pod"
        assert {pod.version for pod in alive} <= {world.job.version}
    else:
        assert world.job.phase in ("Aborted", "Completed", "Failed", "Terminated")
        assert alive == []
        assert world.group is None


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 5), max_size=12))
def test_a_controller_that_keeps_dying_loses_and_doubles_nothing(deaths: list[int]) -> None:
    world = World(job(task("ps", 1), task("worker", 3)))
    for steps in deaths:
        world.look(steps=steps)
        world.admit()
        world.check()
    world.settle()
    assert world.job.phase == "Running"
    assert world.job.retry_count == 0
    assert set(world.pods) == {"j-ps-0", "j-worker-0", "j-worker-1", "j-worker-2"}
