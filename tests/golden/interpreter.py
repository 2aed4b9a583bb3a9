"""The small language of the golden scripts: facts, cycles and decisions, and what they lead to.

A command is a word, names, and ``key=value`` settings. Everything that is appended goes through the
in-memory log, so `decide` may be refused; `knows=SEQ` lets a binder act on what the log said then.
"""

import hashlib
from collections.abc import Callable
from typing import Any

import msgspec

from allotment.core import snapshot
from allotment.core.check import check, oversold
from allotment.core.cycle import Evaluator, Outcome, Trial, recheck, run_cycle, stamped
from allotment.core.logport import Landed, Record
from allotment.core.queues.order import due
from allotment.core.state import ClusterState, apply_all
from allotment.testing.memory_log import MemoryLogCore
from allotment_proto import subjects
from allotment_proto.codec import decode_envelope, encode
from allotment_proto.events import (
    BindFailed,
    Bound,
    Decided,
    Dropped,
    Envelope,
    Event,
    NodeGone,
    Placement,
    PodGone,
    PolicyLoaded,
    Refusal,
)
from allotment_proto.facts import Holding, Policy
from tests import build

NOW_S = 100


class ScriptError(Exception):
    """Raised for a command that the language does not have."""


def fold(records: list[Record]) -> ClusterState:
    """The state after these records."""
    state = ClusterState()
    for record in records:
        apply_all(state, decode_envelope(record.payload).events, record.seq)
    return state


def state_sha256(state: ClusterState) -> str:
    return hashlib.sha256(snapshot.encode(state)).hexdigest()


class Interpreter:
    """One script's world. `run` takes a line and says what came of it."""

    def __init__(self) -> None:
        self.log = MemoryLogCore()
        self.rv = 0
        self.proposals: dict[str, tuple[int, tuple[str, ...], Outcome]] = {}
        self.commands: dict[str, Callable[[list[str], dict[str, str]], list[str]]] = {
            "node": self._node,
            "node-gone": self._node_gone,
            "pod": self._pod,
            "seen": self._seen,
            "end": self._end,
            "pod-gone": self._pod_gone,
            "policy": self._policy,
            "cycle": self._cycle,
            "decide": self._decide,
            "bind": self._bind,
            "fail": self._fail,
            "ledger": self._ledger,
            "due": self._due,
        }

    @property
    def state(self) -> ClusterState:
        return fold(self.log.records)

    def run(self, line: str) -> list[str]:
        word, *rest = line.split()
        if word not in self.commands:
            raise ScriptError(f"{word!r} is no command; known: {', '.join(self.commands)}")
        names = [item for item in rest if "=" not in item]
        settings = dict(item.split("=", 1) for item in rest if "=" in item)
        out = self.commands[word](names, settings)
        return [*out, *(f"BROKEN: {problem}" for problem in check(self.state))]

    def _append(self, subject: str, *events: Event) -> str:
        envelope = Envelope(v=1, at_ms=NOW_S * 1_000, by="script", events=events)
        msg_id = f"script/{self.log.last_seq + 1}"
        landed = self.log.try_append(subject, encode(envelope), msg_id=msg_id)
        assert isinstance(landed, Landed)
        return f"@{landed.seq}"

    def _next_rv(self) -> int:
        self.rv += 1
        return self.rv

    def _node(self, names: list[str], settings: dict[str, str]) -> list[str]:
        name, *flags = names
        cards = [
            build.card(
                index,
                id=f"{name}-{index}",
                memory_mib=int(settings.get("memory", "16000")),
                model=settings.get("model", build.MODEL),
            )
            for index in range(int(settings.get("cards", "1")))
        ]
        fact = build.node(name, cards, rv=self._next_rv(), unschedulable="cordoned" in flags)
        return [f"{self._append(subjects.node(name), fact)} node {' '.join(names)}"]

    def _node_gone(self, names: list[str], settings: dict[str, str]) -> list[str]:
        gone = NodeGone(name=names[0], uid=f"uid-{names[0]}", rv=self._next_rv())
        return [f"{self._append(subjects.node(names[0]), gone)} node {names[0]} gone"]

    def _pod(self, names: list[str], settings: dict[str, str]) -> list[str]:
        out = []
        for name in names:
            wanted = build.wants(
                int(settings.get("memory", "4000")),
                int(settings.get("cores", "0")),
                int(settings.get("count", "1")),
            )
            fact = build.pod(
                name,
                build.request(wanted),
                name=name,
                rv=self._next_rv(),
                created_ms=self.rv,
                priority=int(settings.get("priority", "0")),
                scheduler=settings.get("scheduler", "allotment"),
            )
            out.append(f"{self._append(subjects.pod(name), fact)} pod {name} waits")
        return out

    def _see(self, name: str, **changes: Any) -> str:
        fact = msgspec.structs.replace(self.state.pods[name].fact, rv=self._next_rv(), **changes)
        return self._append(subjects.pod(name), fact)

    def _seen(self, names: list[str], settings: dict[str, str]) -> list[str]:
        """`seen POD node=N cards=CARD:MIB:CORES,…`: bound, by whomever."""
        holdings = []
        for item in filter(None, settings.get("cards", "").split(",")):
            card, memory_mib, cores_pct = item.split(":")
            holdings.append(Holding("vgpu", 0, card, int(memory_mib), int(cores_pct)))
        node = settings["node"]
        at = self._see(names[0], node=node, holdings=tuple(holdings))
        return [f"{at} pod {names[0]} is seen on {node}"]

    def _end(self, names: list[str], settings: dict[str, str]) -> list[str]:
        return [f"{self._see(name, phase='Succeeded')} pod {name} ended" for name in names]

    def _pod_gone(self, names: list[str], settings: dict[str, str]) -> list[str]:
        (name,) = names
        gone = PodGone(uid=name, namespace="default", name=name, rv=self._next_rv())
        return [f"{self._append(subjects.pod(name), gone)} pod {name} gone"]

    def _policy(self, names: list[str], settings: dict[str, str]) -> list[str]:
        rules = Policy(
            device_policy=settings.get("device", "binpack"),
            host_policy=settings.get("host", "none"),
        )
        event = PolicyLoaded(policy=rules, source="script", text_sha256="")
        return [f"{self._append(subjects.CONFIG, event)} policy {rules.device_policy}"]

    def _cycle(self, names: list[str], settings: dict[str, str]) -> list[str]:
        """`cycle PROPOSAL POD…`: a scorer places the pods; nothing is appended."""
        proposal, *batch = names
        basis = int(settings.get("knows", self.log.last_seq))
        state = fold(self.log.records[:basis])
        outcome = run_cycle(state, batch, Evaluator(state))
        self.proposals[proposal] = (basis, tuple(batch), outcome)
        return [
            *(f"{proposal}: {_placed(placement)}" for placement in outcome.placements),
            *(f"{proposal}: {_refused(refusal)}" for refusal in outcome.refusals),
            *(f"{proposal}: {uid} refused as before" for uid in outcome.suppressed),
        ]

    def _decide(self, names: list[str], settings: dict[str, str]) -> list[str]:
        """`decide PROPOSAL`: a binder asks again, then appends after the last decision it knows.

        With ``recheck=off`` it does not ask, and with ``knows`` it asks what it knew then.
        """
        basis, batch, outcome = self.proposals[names[0]]
        known = fold(self.log.records[: int(settings.get("knows", self.log.last_seq))])
        trial = Trial(known)
        kept: list[Placement] = []
        dropped: list[Dropped] = []
        for placement in outcome.placements:
            code = recheck(known, trial, placement) if settings.get("recheck") != "off" else None
            if code is None:
                kept.append(placement)
            else:
                dropped.append(Dropped(placement, code))
        out = [f"{names[0]}: {d.placement.uid} dropped, {d.code}" for d in dropped]
        event = Decided(
            cycle=names[0],
            basis=basis,
            checked=known.seq,
            policy=known.policy_seq,
            batch=batch,
            placements=tuple(stamped(known, kept, NOW_S)),
            dropped=tuple(dropped),
            refusals=outcome.refusals,
        )
        envelope = Envelope(v=1, at_ms=NOW_S * 1_000, by="script", events=(event,))
        answer = self.log.try_append(
            subjects.DECISION,
            encode(envelope),
            msg_id=f"{names[0]}/{self.log.last_seq}",
            expected_seq=known.decision_seq,
        )
        if not isinstance(answer, Landed):
            last = answer.last_subject_seq
            return [*out, f"{names[0]}: REFUSED after @{known.decision_seq}, the last is @{last}"]
        state = self.state
        for placement in event.placements:
            is_void = state.voided.get(placement.uid) == answer.seq
            end = "VOID" if is_void else f"reserved at {placement.stamp_s}"
            cards = ",".join(h.card for h in placement.holdings)
            out.append(f"@{answer.seq} {placement.uid} → {placement.node} {cards} {end}")
        return out or [f"@{answer.seq} nothing placed"]

    def _decision_of(self, name: str) -> int:
        held = self.state.pods[name].allocation
        return held.seq if held is not None else 0

    def _bind(self, names: list[str], settings: dict[str, str]) -> list[str]:
        out = []
        for name in names:
            held = self.state.pods[name].allocation
            assert held is not None
            event = Bound(
                uid=name, namespace="default", name=name, node=held.node, decision=held.seq
            )
            at = self._append(subjects.OUTCOME, event)
            out.append(f"{at} {name} bound to {held.node} as @{held.seq} decided")
        return out

    def _fail(self, names: list[str], settings: dict[str, str]) -> list[str]:
        (name,) = names
        event = BindFailed(
            uid=name,
            namespace="default",
            name=name,
            node="",
            decision=int(settings.get("decision", self._decision_of(name))),
            code=settings.get("code", "BindConflict"),
            message="",
        )
        at = self._append(subjects.OUTCOME, event)
        held = self.state.pods[name].allocation
        return [f"{at} {name} {'keeps its place' if held else 'waits again'}"]

    def _ledger(self, names: list[str], settings: dict[str, str]) -> list[str]:
        state, out = self.state, []
        too_much = set(oversold(state))
        for node in sorted(state.nodes.values(), key=lambda n: n.name):
            if node.fact is None:
                out.append(f"{node.name}: gone, still held by {', '.join(node.allocations)}")
            for card in (card for books in node.ledgers.values() for card in books.cards):
                fact, holders = card.fact, sorted(uid for uid, _ in card.holders)
                marks = {uid: state.pods[uid].allocation for uid in holders}
                who = ", ".join(f"{uid} {held.phase}" for uid, held in marks.items() if held)
                flag = " OVERSOLD" if f"{node.name}/{fact.id}" in too_much else ""
                out.append(
                    f"{fact.id}: {card.used_memory_mib}/{fact.memory_mib} MiB "
                    f"{card.used_cores_pct}/{fact.cores_pct} % [{who}]{flag}"
                )
        return out

    def _due(self, names: list[str], settings: dict[str, str]) -> list[str]:
        state = self.state
        return [f"due: {' '.join(pod.fact.uid for pod in due(state, {})) or 'nobody'}"]


def _placed(placement: Placement) -> str:
    cards = ",".join(h.card for h in placement.holdings)
    others = " ".join(f"{r.node}={r.score_micro / 1_000_000:.1f}" for r in placement.runners_up)
    score = placement.score_micro / 1_000_000
    end = f", then {others}" if others else ""
    return f"{placement.uid} → {placement.node} {cards} score {score:.1f}{end}"


def _refused(refusal: Refusal) -> str:
    counted = ", ".join(f"{count} {code}" for code, count in refusal.reasons)
    return f"{refusal.uid} fits on 0/{refusal.nodes} nodes: {counted or 'there is none'}"
