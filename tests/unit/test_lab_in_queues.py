"""A log with queues, groups and evictions becomes a run with them: nothing is left out silently."""

from pathlib import Path

import msgspec

from allotment.core.config.policy import parse
from allotment.core.ledger.check import check, oversold
from allotment.core.placement.policies.typical import Mix
from allotment_board.board import Board
from allotment_lab.bundle import from_records
from allotment_lab.engine import Simulation
from allotment_lab.in_queues import InQueues
from allotment_lab.workload import Workload
from allotment_proto import subjects
from allotment_proto.events import (
    GroupGone,
    GroupObserved,
    PodObserved,
    PriorityClassObserved,
    QueueObserved,
)
from allotment_proto.facts import PodRequest
from tests.recording import Recorder, uid_of, vgpu
from tests.replaying import verify
from tests.simulating import simulate
from tests.unit.lab_parts import Kept

CONFIGURATION = """
actions: "enqueue, allocate, preempt, backfill"
tiers:
- plugins:
  - name: priority
  - name: gang
  - name: conformance
- plugins:
  - name: deviceshare
    arguments: {deviceshare.VGPUEnable: true}
  - name: predicates
  - name: proportion
  - name: nodeorder
"""
POLICY = parse(CONFIGURATION, "test", ("allotment",)).policy
WHOLE = PodRequest(
    cpu_milli=500,
    memory_bytes=1 << 30,
    extended=(("volcano.sh/vgpu-number", 1),),
    devices=vgpu(1, 40960, 100).devices,
)
NO_MIX: Mix = ()


class Told(Recorder):
    """A log of a cluster with queues, written by a watcher alone: nothing was decided in it."""

    def __init__(self) -> None:
        super().__init__()
        self.policy(POLICY)
        self.node("n1", cards=4, extended=(("volcano.sh/vgpu-number", 40),))
        self.queue("default")

    def queue(self, name: str, cards: int | None = None) -> None:
        capability = () if cards is None else (("volcano.sh/vgpu-number", 1000 * cards),)
        event = QueueObserved(uid=name, name=name, rv=1, capability=capability)
        self.append(subjects.FACTS, "watcher/0", event)

    def priority(self, name: str, value: int) -> None:
        event = PriorityClassObserved(uid=name, name=name, rv=1, value=value)
        self.append(subjects.FACTS, "watcher/0", event)

    def group(
        self,
        name: str,
        pods: int,
        *,
        least: int = 1,
        queue: str = "default",
        priority: str = "",
        phase: str = "",
        owner: str = "job",
    ) -> list[str]:
        """A group and its pods; the pods' uids."""
        group = GroupObserved(
            uid=uid_of(name),
            namespace="default",
            name=name,
            rv=1,
            created_ms=self.now_ms,
            queue=queue,
            min_member=least,
            priority_class=priority,
            phase=phase,
            preemptable=True,
            owner=owner,
        )
        self.append(subjects.FACTS, "watcher/0", group)
        return [self._member(f"{name}-{at}", name, priority, owner) for at in range(pods)]

    def _member(self, name: str, group: str, priority: str, owner: str) -> str:
        fact = PodObserved(
            uid=uid_of(name),
            namespace="default",
            name=name,
            rv=1,
            created_ms=self.now_ms,
            scheduler="allotment",
            phase="Pending",
            request=WHOLE,
            priority={"": 0, "high": 100}[priority],
            priority_class=priority,
            group=f"default/{group}",
            owner=owner,
        )
        self.append(subjects.pod(fact.uid), "watcher/0", fact)
        return fact.uid


class Played(InQueues):
    def __init__(self, workload: Workload, kept: Kept | None = None) -> None:
        assert workload.policy is not None
        self.simulation = Simulation(
            workload.nodes, workload.policy, Board, sink=None if kept is None else kept.sink
        )
        self.state = self.simulation.state
        super().__init__(self.simulation, Board(self.state), NO_MIX, workload.facts)
        self.run([*workload.fixed, *workload.ours], lambda arrived: None)
        assert check(self.state) == []
        assert oversold(self.state) == []

    @property
    def holding(self) -> set[str]:
        return {uid for uid, pod in self.state.pods.items() if pod.allocation is not None}


def played(log: Recorder, kept: Kept | None = None) -> Played:
    return Played(from_records(log.records, "log.jsonl"), kept)


def test_a_gang_is_placed_as_a_whole_or_not_at_all() -> None:
    log = Told()
    too_big = log.group("big", 5, least=5)
    fitting = log.group("fits", 3, least=3)
    run = played(log)
    assert run.holding == set(fitting)
    assert not run.holding & set(too_big)


def test_a_queue_gets_no_more_than_its_capability() -> None:
    log = Told()
    log.queue("small", cards=2)
    for number in range(4):
        log.group(f"job-{number}", 1, queue="small")
    assert len(played(log).holding) == 2


def test_pods_of_higher_priority_displace_others_and_an_owned_victim_comes_again() -> None:
    log = Told()
    log.priority("high", 100)
    low = log.group("low", 4)
    for _ in range(5):
        log.node("n2", cards=0)
    urgent = log.group("urgent", 2, least=2, priority="high")
    kept = Kept()
    run = played(log, kept)
    assert set(urgent) <= run.holding
    assert run.simulation.evicted == 2
    assert len(run.holding) == 4
    again = [uid for uid in run.state.pods if uid.endswith("-again")]
    assert len(again) == 2
    assert not run.holding & set(again)
    assert len(set(low) & set(run.state.pods)) == 2
    assert run.totals().evicted == 2


def test_a_victim_without_an_owner_is_gone() -> None:
    log = Told()
    log.priority("high", 100)
    log.group("low", 4, owner="")
    for _ in range(5):
        log.node("n2", cards=0)
    log.group("urgent", 1, priority="high")
    run = played(log)
    assert run.simulation.evicted == 1
    assert not [uid for uid in run.state.pods if uid.endswith("-again")]


def test_what_was_decided_then_is_not_taken_over() -> None:
    log = Told()
    log.queue("shut", cards=0)
    log.group("let-in", 1, queue="shut", phase="Running")
    assert played(log).holding == set()


def test_a_group_that_waits_ends_with_its_pods() -> None:
    log = Told()
    uids = log.group("short", 2, least=2)
    for uid in uids:
        log.gone(uid)
    run = played(log)
    assert run.state.pending == {} or not run.state.pending
    assert run.holding == set()


def test_a_kept_run_replays_identically() -> None:
    log = Told()
    log.priority("high", 100)
    log.group("low", 4)
    for _ in range(5):
        log.node("n2", cards=0)
    log.group("urgent", 2, least=2, priority="high")
    kept = Kept()
    played(log, kept)
    report = verify(kept.log.records)
    assert report.identical == report.decisions > 2


def test_the_command_says_what_it_assumes_and_how_many_were_evicted(tmp_path: Path) -> None:
    log = Told()
    log.priority("high", 100)
    log.group("low", 4)
    for _ in range(5):
        log.node("n2", cards=0)
    log.group("urgent", 2, least=2, priority="high")
    path = log.write(tmp_path / "log.jsonl")
    result = simulate("--file", str(path), "--policy", "recorded", "--policy", "spread", "--json")
    assert "groups, queues, quotas and evictions act at once" in result.stderr
    runs = [msgspec.json.decode(line) for line in result.stdout.splitlines()]
    assert [run["evicted"] for run in runs] == [2, 2]
    table = simulate("--file", str(path))
    assert "EVICTED" in table.stdout
    left_out = simulate("--file", str(path), "--no-churn")
    assert "left out by --no-churn: groups, queues, quotas and evictions" in left_out.stderr


def test_dice_do_not_choose_for_groups(tmp_path: Path) -> None:
    log = Told()
    log.group("low", 1)
    path = log.write(tmp_path / "log.jsonl")
    result = simulate("--file", str(path), "--policy", "random", code=2)
    assert "no dice choose for groups" in result.stderr


def test_a_group_that_is_made_again_while_its_old_pods_leave_stays() -> None:
    """As a Job that starts anew: the second life's pods belong to the second PodGroup."""
    log = Told()
    first = log.group("job", 2, least=2)
    log.now_ms += 10_000
    gone = GroupGone(uid=uid_of("job"), namespace="default", name="job", rv=2)
    log.append(subjects.FACTS, "watcher/0", gone)
    log.group("job", 0, least=2)
    log.now_ms += 5_000
    for uid in first:
        log.gone(uid)
    log.now_ms += 5_000
    second = [log._member(f"job-again-{at}", "job", "", "job") for at in range(2)]
    log.node("n2", cards=1)
    assert played(log).holding == {*second}
