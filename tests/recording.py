"""A log made by driving the core by hand: facts, cycles and outcomes as the services write them.

Deterministic: times come from a counter, uids from the pods' names. Stale states are made by asking
for a cycle on an earlier sequence (`Recorder.decide(basis=…)`).
"""

import hashlib
from pathlib import Path

import msgspec

from allotment.adapters.log import exported
from allotment.core.ledger.model import Allocation, ClusterState
from allotment.core.ledger.state import apply_all, pass_over
from allotment.core.logport import Record
from allotment.core.placement.cycle import recheck, stamped
from allotment.core.placement.evaluator import Evaluator, Trial
from allotment.core.queues.round.rounds import Rounds
from allotment_proto import subjects
from allotment_proto.codec import decode_envelope, encode
from allotment_proto.events import (
    BindFailed,
    Bound,
    Decided,
    Dropped,
    Envelope,
    Event,
    NodeObserved,
    PodGone,
    PodObserved,
    PolicyLoaded,
    StageTime,
)
from allotment_proto.facts import (
    CardFact,
    Constraints,
    DeviceRequest,
    Inventory,
    PodRequest,
    Policy,
    Problem,
    Selection,
    Taint,
)

START_MS = 1_795_183_200_000  # 2026-11-20T14:00:00Z
STEP_MS = 250
GIB = 1 << 30


def uid_of(name: str) -> str:
    """A UUID-shaped uid that depends on the name alone."""
    digits = hashlib.sha256(name.encode()).hexdigest()
    parts = (digits[:8], digits[8:12], "4" + digits[13:16], "a" + digits[17:20], digits[20:32])
    return "-".join(parts)


def vgpu(count: int = 1, memory_mib: int = 3000, cores_pct: int = 50) -> PodRequest:
    """One container that asks for shares of `count` cards."""
    ask = DeviceRequest("vgpu", 0, "main", count, memory_mib, 0, cores_pct)
    return PodRequest(cpu_milli=500, memory_bytes=GIB, devices=(ask,))


class Recorder:
    """Appends like the watcher, the scorer and the binder do, and folds along."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.state = ClusterState()
        self.now_ms = START_MS
        self._rv = 0
        self._cycles = 0

    @property
    def seq(self) -> int:
        return len(self.records)

    def append(self, subject: str, by: str, *events: Event) -> int:
        """One record; it takes effect at once."""
        self.now_ms += STEP_MS
        envelope = Envelope(at_ms=self.now_ms, by=by, events=events)
        return self.append_bytes(subject, encode(envelope), events)

    def append_bytes(self, subject: str, payload: bytes, events: tuple[Event, ...] = ()) -> int:
        """A record as it is; without `events` it is one that cannot be read."""
        seq = self.seq + 1
        record = Record(seq, subject, payload, self.now_ms * 1_000_000, f"test/{seq}")
        self.records.append(record)
        if events:
            apply_all(self.state, events, seq)
        else:
            pass_over(self.state, seq, is_decision=subject == subjects.DECISION)
        return seq

    def policy(self, policy: Policy) -> int:
        loaded = PolicyLoaded(policy=policy, source="test", text_sha256="")
        return self.append(subjects.CONFIG, "watcher/0", loaded)

    def node(
        self,
        name: str,
        model: str = "NVIDIA-A100",
        cards: int = 2,
        memory_mib: int = 40960,
        *,
        cpu_milli: int = 64_000,
        labels: tuple[tuple[str, str], ...] = (),
        extended: tuple[tuple[str, int], ...] = (),
        taints: tuple[Taint, ...] = (),
        unschedulable: bool = False,
        ready: bool = True,
        unhealthy: tuple[int, ...] = (),
        problems: tuple[Problem, ...] = (),
    ) -> int:
        self._rv += 1
        facts = tuple(
            CardFact(
                id=f"GPU-{uid_of(f'{name}/{index}')[:8]}",
                index=index,
                model=model,
                slots=10,
                memory_mib=memory_mib,
                cores_pct=100,
                healthy=index not in unhealthy,
                mode="hami-core",
            )
            for index in range(cards)
        )
        observed = NodeObserved(
            name=name,
            uid=uid_of(name),
            rv=self._rv,
            labels=(("kubernetes.io/hostname", name), *labels),
            taints=taints,
            unschedulable=unschedulable,
            ready=ready,
            cpu_milli=cpu_milli,
            memory_bytes=256 * GIB,
            pods=110,
            extended=extended,
            inventories=(Inventory("vgpu", "hami-core", facts),) if facts else (),
            problems=problems,
        )
        return self.append(subjects.node(name), "watcher/0", observed)

    def pod(
        self,
        name: str,
        request: PodRequest | None = None,
        *,
        namespace: str = "default",
        selection: Selection | None = None,
        constraints: Constraints | None = None,
        problem: Problem | None = None,
        scheduler: str = "allotment",
        uid: str = "",
        asks: PodRequest | None = None,
    ) -> str:
        self._rv += 1
        wanted = request if request is not None else vgpu()
        if selection is not None:
            wanted = msgspec.structs.replace(wanted, selection=selection)
        if constraints is not None:
            wanted = msgspec.structs.replace(wanted, constraints=constraints)
        uid = uid or uid_of(f"{namespace}/{name}")
        observed = PodObserved(
            uid=uid,
            namespace=namespace,
            name=name,
            rv=self._rv,
            created_ms=self.now_ms,
            scheduler=scheduler,
            phase="Pending",
            request=wanted,
            problem=problem,
            asks=asks,
        )
        self.append(subjects.pod(uid), "watcher/0", observed)
        return uid

    def decide(self, *uids: str, basis: int | None = None) -> int:
        """One cycle through scorer and binder; `basis` lets the scorer lag behind."""
        batch = uids or tuple(self.state.pending)
        old = self.state if basis is None else fold(self.records[:basis])
        outcome = Rounds(old).run(batch, Evaluator(old))
        trial = Trial(self.state)
        kept, dropped = [], []
        for placement in outcome.placements:
            code = recheck(self.state, trial, placement)
            if code is None:
                kept.append(placement)
            else:
                dropped.append(Dropped(placement, code))
        self._cycles += 1
        at_us = self.now_ms * 1000
        decided = Decided(
            cycle=f"c{self._cycles}",
            basis=old.seq,
            checked=self.state.seq,
            policy=old.policy_seq,
            batch=batch,
            placements=tuple(stamped(self.state, kept, (self.now_ms + STEP_MS) // 1000)),
            dropped=tuple(dropped),
            refusals=tuple(r for r in outcome.refusals if r.uid in self.state.pending),
            stages=(
                StageTime("filter", "0", at_us + 1000, at_us + 20_000),
                StageTime("scorer", "0", at_us + 21_000, at_us + 60_000),
                StageTime("binder", "0", at_us + 61_000, at_us + 90_000),
            ),
        )
        return self.append(subjects.DECISION, "binder/0", decided)

    def bind(self, uid: str) -> int:
        """The Binding was accepted, and the watcher sees the pod running with its annotations."""
        fact, held = self._reserved(uid)
        bound = Bound(
            uid=uid, namespace=fact.namespace, name=fact.name, node=held.node, decision=held.seq
        )
        self.append(subjects.OUTCOME, "binder/0", bound)
        return self.observe(uid, phase="Running", node=held.node, holdings=held.holdings)

    def bind_failed(self, uid: str, message: str) -> int:
        fact, held = self._reserved(uid)
        failed = BindFailed(
            uid=uid,
            namespace=fact.namespace,
            name=fact.name,
            node=held.node,
            decision=held.seq,
            code="BindConflict",
            message=message,
            holdings=held.holdings,
        )
        return self.append(subjects.OUTCOME, "binder/0", failed)

    def observe(self, uid: str, **changes: object) -> int:
        self._rv = max(self._rv, self.seq) + 1
        fact = msgspec.structs.replace(self.state.pods[uid].fact, rv=self._rv, **changes)
        return self.append(subjects.pod(uid), "watcher/0", fact)

    def gone(self, uid: str) -> int:
        fact = self.state.pods[uid].fact
        self._rv = max(self._rv, self.seq) + 1
        return self.append(
            subjects.pod(uid),
            "watcher/0",
            PodGone(uid=uid, namespace=fact.namespace, name=fact.name, rv=self._rv),
        )

    def _reserved(self, uid: str) -> tuple[PodObserved, Allocation]:
        pod = self.state.pods[uid]
        assert pod.allocation is not None, f"pod {uid} has no reservation"
        return pod.fact, pod.allocation

    def write(self, path: Path) -> Path:
        """Export the log as `allot log -o jsonl` does."""
        path.write_text("".join(exported.encode(record) + "\n" for record in self.records))
        return path


def fold(records: list[Record]) -> ClusterState:
    """The state after some records, all of them readable."""
    state = ClusterState()
    for record in records:
        apply_all(state, decode_envelope(record.payload).events, record.seq)
    return state


def busy_cluster() -> Recorder:
    """A small cluster with every kind of thing on it: the recorded log of the screens."""
    log = Recorder()
    log.policy(Policy(scheduler_names=("allotment", "volcano"), host_policy="spread"))
    log.node("gpu-01", "NVIDIA-GeForce-RTX-4090", cards=4, memory_mib=24564)
    log.node("gpu-02", "NVIDIA-A100-PCIE-40GB", cards=2, memory_mib=40960, unhealthy=(1,))
    log.node("gpu-03", "NVIDIA-A100-PCIE-40GB", cards=2, memory_mib=40960, unschedulable=True)
    log.node(
        "gpu-04",
        "Tesla-T4",
        cards=2,
        memory_mib=15360,
        taints=(Taint("dedicated", "serving", "NoSchedule"),),
    )
    log.node("whole-01", cards=0, extended=(("nvidia.com/gpu", 8),))
    log.node(
        "broken-01",
        cards=0,
        problems=(
            Problem("BrokenRegister", "annotation volcano.sh/node-vgpu-register", "no card in it"),
        ),
    )
    first = [log.pod("half"), log.pod("pair", vgpu(count=2)), log.pod("big", vgpu(1, 20000, 60))]
    log.decide(*first)
    for uid in first:
        log.bind(uid)
    whole = log.pod("whole", PodRequest(cpu_milli=1000, extended=(("nvidia.com/gpu", 6),)))
    more = log.pod("whole-more", PodRequest(cpu_milli=1000, extended=(("nvidia.com/gpu", 4),)))
    only = log.pod(
        "a100-only",
        vgpu(1, 30000, 70),
        namespace="research",
        selection=Selection(use_types=("A100",)),
    )
    log.decide(whole, more, only)
    log.bind(whole)
    log.bind(only)
    log.pod(
        "llama", vgpu(1, 16384, 40), namespace="research", selection=Selection(use_types=("A100",))
    )
    log.pod("never", vgpu(1, 999_999, 10), namespace="research")
    log.pod(
        "wrong",
        problem=Problem(
            "InvalidRequest", "container 'main', volcano.sh/vgpu-cores", "is 120; 0 to 100"
        ),
    )
    log.decide()
    log.observe(uid_of("default/half"), phase="Succeeded")
    log.gone(uid_of("default/half"))
    return log
