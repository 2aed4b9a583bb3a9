"""A log with queues and groups, made as the services make it: the record of the batch screens."""

from typing import Any

import msgspec

from allotment.core.placement.cycle import Outcome, recheck_all, stamped
from allotment.core.placement.evaluator import Evaluator
from allotment.core.queues.round.rounds import Rounds
from allotment_proto import subjects
from allotment_proto.events import (
    Decided,
    Evicted,
    GroupObserved,
    PodObserved,
    PriorityClassObserved,
    QueueObserved,
)
from allotment_proto.facts import PluginUse, Policy
from tests.recording import GIB, STEP_MS, Recorder, uid_of, vgpu

TIERS = (
    (PluginUse("priority"), PluginUse("gang")),
    (PluginUse("predicates"), PluginUse("capacity")),
)
POLICY = Policy(
    scheduler_names=("volcano",), tiers=TIERS, actions=("enqueue", "allocate", "backfill")
)


class BatchRecorder(Recorder):
    """Also tells of queues, classes and groups, and decides in rounds."""

    def queue(self, name: str, **fields: Any) -> None:
        fact = QueueObserved(uid=uid_of(f"queue {name}"), name=name, rv=self.seq + 1, **fields)
        self.append(subjects.queue(name), "watcher/0", fact)

    def priority_class(self, name: str, value: int, **fields: Any) -> None:
        fact = PriorityClassObserved(
            uid=uid_of(name), name=name, rv=self.seq + 1, value=value, **fields
        )
        self.append(subjects.priority_class(name), "watcher/0", fact)

    def group(self, name: str, members: int, pods: int, memory_mib: int, **fields: Any) -> None:
        fact = GroupObserved(
            uid=uid_of(f"group {name}"),
            namespace="default",
            name=name,
            rv=self.seq + 1,
            created_ms=self.now_ms,
            min_member=members,
            **{"phase": "Inqueue", **fields},
        )
        self.append(subjects.group("default", name), "watcher/0", fact)
        known = self.state.classes.get(fact.priority_class)
        value = 0 if known is None else known.value
        for number in range(pods):
            uid = uid_of(f"default/{name}-worker-{number}")
            pod = PodObserved(
                uid=uid,
                namespace="default",
                name=f"{name}-worker-{number}",
                rv=self.seq + 1,
                created_ms=self.now_ms,
                scheduler="volcano",
                phase="Pending",
                request=vgpu(1, memory_mib, 50),
                group=f"default/{name}",
                role="worker",
                priority=value,
                priority_class=fact.priority_class,
            )
            self.append(subjects.pod(uid), "watcher/0", pod)

    def propose(self, batch: tuple[str, ...]) -> Outcome:
        """What a round places."""
        return Rounds(self.state).run(batch, Evaluator(self.state))

    def round(self, *uids: str) -> int:
        """One round through scorer and binder, over these pods or all that wait."""
        return self.round_over(uids or tuple(self.state.pending))

    def round_over(self, batch: tuple[str, ...]) -> int:
        """The same over a batch, which may be empty: groups are admitted even so."""
        state, basis = self.state, self.seq
        found = self.propose(batch)
        kept, dropped, wholes = recheck_all(state, found.placements, found.wholes)
        self._cycles += 1
        decided = Decided(
            cycle=f"c{self._cycles}",
            basis=basis,
            checked=basis,
            policy=state.policy_seq,
            batch=batch,
            placements=tuple(stamped(state, kept, (self.now_ms + STEP_MS) // 1000)),
            dropped=tuple(dropped),
            refusals=found.refusals,
            wholes=wholes,
            shorts=found.shorts,
            admissions=found.admissions,
            holds=found.holds,
            evictions=found.evictions,
            nominations=found.nominations,
        )
        return self.append(subjects.DECISION, "binder/0", decided)


def preempted() -> BatchRecorder:
    """An urgent gang has pods of a background job evicted and gets their room; another may not."""
    log = BatchRecorder()
    log.policy(msgspec.structs.replace(POLICY, actions=(*POLICY.actions, "preempt")))
    log.queue("default")
    log.priority_class("high", 1000)
    log.priority_class("patient", 1000, preempts=False)
    log.node("gpu-01", cards=2)
    log.node("gpu-02", cards=1)
    log.group("background", 1, 3, 30_000)
    log.round()
    background = [uid_of(f"default/background-worker-{number}") for number in range(3)]
    for uid in background:
        log.bind(uid)
    log.group("patient", 1, 1, 30_000, priority_class="patient")
    log.group("urgent", 2, 2, 30_000, priority_class="high")
    log.round()
    evicted = list(log.state.evicting.values())
    for eviction in evicted:
        name = {"uid": eviction.uid, "namespace": "default", "name": eviction.name}
        ending = Evicted(
            **name,
            node=eviction.node,
            decision=log.state.decision_seq,
            action=eviction.action,
            for_whom=eviction.preemptor,
        )
        log.append(subjects.OUTCOME, "binder/0", ending)
        log.observe(eviction.uid, deleting=True)
    for eviction in evicted:
        log.gone(eviction.uid)
    log.round()
    for number in range(2):
        log.bind(uid_of(f"default/urgent-worker-{number}"))
    return log


def joined_after_it_ran() -> BatchRecorder:
    """Pods run alone, one of them joins the PodGroup that is made for it, as Volcano's controller
    does, another leaves its group. Then urgent pods come for which some have to go.
    """
    log = BatchRecorder()
    log.policy(msgspec.structs.replace(POLICY, actions=(*POLICY.actions, "preempt")))
    log.queue("default")
    log.priority_class("high", 1000)
    log.node("gpu-01", cards=2)
    log.node("gpu-02", cards=2)
    alone = [log.pod(name, vgpu(1, 30_000, 50), scheduler="volcano") for name in ("a", "b")]
    log.group("team", 1, 2, 30_000)
    log.round()
    team = [uid_of(f"default/team-worker-{number}") for number in range(2)]
    for uid in (*alone, *team):
        log.bind(uid)
    log.group("urgent-0", 1, 1, 30_000, priority_class="high")
    log.round()
    log.group("made-for-a", 1, 0, 30_000)
    log.observe(alone[0], group="default/made-for-a")
    log.observe(team[0], group="", role="")
    log.group("urgent-1", 2, 2, 30_000, priority_class="high")
    log.round()
    log.observe(alone[0], group="")
    log.group("urgent-2", 1, 1, 30_000, priority_class="high")
    log.round()
    return log


def busy_queues() -> BatchRecorder:
    """A gang runs; others wait for room, for quota, for pods, at a gate, or for a queue."""
    log = BatchRecorder()
    log.policy(POLICY)
    log.queue("default")
    log.queue("training", weight=3, priority=5, capability=(("cpu", 3_000), ("memory", 8 * GIB)))
    log.queue("closed", state="Closed")
    log.priority_class("high", 1000)
    log.node("gpu-01", cards=2)
    log.node("gpu-02", cards=2)
    log.group("llama", 4, 4, 30_000, queue="training", priority_class="high")
    log.round()
    for number in range(4):
        log.bind(uid_of(f"default/llama-worker-{number}"))
    log.node("gpu-03", cards=3)
    log.group("big", 5, 5, 30_000, priority_class="high")
    log.group("quota", 3, 3, 1_000, queue="training")
    log.group("few", 3, 2, 1_000)
    log.group("late", 1, 0, 1_000, queue="closed", phase="Pending", min_resources=(("cpu", 500),))
    log.group("lost", 1, 1, 1_000, queue="nowhere")
    log.group("huge", 2, 2, 99_000)
    log.round()
    return log
