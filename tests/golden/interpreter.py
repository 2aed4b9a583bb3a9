"""The small language of the golden scripts: facts, cycles and decisions, and what they lead to.

A command is a word, names, and ``key=value`` settings. Everything that is appended goes through the
in-memory log, so `decide` may be refused; `knows=SEQ` lets a binder act on what the log said then.
"""

import hashlib
from collections.abc import Callable

from allotment.core.ledger import snapshot
from allotment.core.ledger.check import check
from allotment.core.ledger.model import ClusterState
from allotment.core.logport import Landed
from allotment.core.placement.cycle import Outcome, Rechecked, recheck_all, stamped
from allotment.core.placement.evaluator import Evaluator
from allotment.core.queues.order import due
from allotment.core.queues.round.rounds import Rounds
from allotment_board.board import Board
from allotment_proto import subjects
from allotment_proto.codec import encode
from allotment_proto.events import BindFailed, Bound, Decided, Envelope, Evicted
from tests.golden import lines
from tests.golden.log import NOW_S, Lines, fold
from tests.golden.manifests import Settings
from tests.golden.teller import Teller

__all__ = ["Interpreter", "ScriptError", "fold", "state_sha256"]


class ScriptError(Exception):
    """Raised for a command that the language does not have."""


def state_sha256(state: ClusterState) -> str:
    return hashlib.sha256(snapshot.encode(state)).hexdigest()


class Interpreter(Teller):
    """One script's world. `run` takes a line and says what came of it."""

    def __init__(self) -> None:
        super().__init__()
        self.proposals: dict[str, tuple[int, tuple[str, ...], Outcome]] = {}
        self.commands: dict[str, Callable[[list[str], Settings], Lines]] = {
            "node": self._node,
            "node-gone": self._node_gone,
            "pod": self._pod,
            "seen": self._seen,
            "start": self._start,
            "plugin-fails": self._plugin_fails,
            "end": self._end,
            "leave": self._leave,
            "pod-gone": self._pod_gone,
            "group": self._group,
            "group-gone": self._group_gone,
            "queue": self._queue,
            "queue-gone": self._queue_gone,
            "class": self._class,
            "policy": self._policy,
            "conf": self._conf,
            "devices": self._devices,
            "cycle": self._cycle,
            "decide": self._decide,
            "bind": self._bind,
            "fail": self._fail,
            "evicted": self._evicted,
            "churn": self._churn,
            "ledger": self._ledger,
            "held": self._held,
            "due": self._due,
        }

    def run(self, line: str) -> Lines:
        word, *rest = line.split()
        if word not in self.commands:
            raise ScriptError(f"{word!r} is no command; known: {', '.join(self.commands)}")
        names = [name for item in rest if "=" not in item for name in self._named(item)]
        settings = dict(item.split("=", 1) for item in rest if "=" in item)
        out = self.commands[word](names, settings)
        return [*out, *(f"BROKEN: {problem}" for problem in check(self.state))]

    def _named(self, word: str) -> Lines:
        """`victims` are the pods that were asked to make room and are not gone, `victim` the first
        of them.
        """
        asked = list(self.state.evicting)
        return {"victims": asked, "victim": asked[:1]}.get(word, [word])

    # Decisions

    def _cycle(self, names: list[str], settings: Settings) -> Lines:
        """`cycle PROPOSAL POD…`: a scorer places the pods (none named: all that wait); nothing is
        appended. The product's board must say the same as the plain loops.
        """
        proposal, *batch = names
        basis = int(settings.get("knows", self.log.last_seq))
        state = fold(self.log.records[:basis])
        batch = batch or list(state.pending)
        outcome = Rounds(state).run(batch, Evaluator(state))
        assert Rounds(state).run(batch, Board(state)) == outcome
        self.proposals[proposal] = (basis, tuple(batch), outcome)
        return list(lines.of_cycle(proposal, outcome))

    def _decide(self, names: list[str], settings: Settings) -> Lines:
        """`decide PROPOSAL`: a binder asks again, then appends after the last decision it knows.

        With ``recheck=off`` it does not ask, and with ``knows`` it asks what it knew then.
        """
        basis, batch, outcome = self.proposals[names[0]]
        known = fold(self.log.records[: int(settings.get("knows", self.log.last_seq))])
        found = Rechecked(outcome.placements, (), outcome.wholes)
        if settings.get("recheck") != "off":
            found = recheck_all(known, outcome.placements, outcome.wholes)
        out = [f"{names[0]}: {d.placement.uid} dropped, {d.code}" for d in found.dropped]
        event = Decided(
            cycle=names[0],
            basis=basis,
            checked=known.seq,
            policy=known.policy_seq,
            batch=batch,
            placements=tuple(stamped(known, found.kept, NOW_S)),
            dropped=found.dropped,
            refusals=outcome.refusals,
            wholes=found.wholes,
            shorts=outcome.shorts,
            admissions=outcome.admissions,
            evictions=outcome.evictions,
            holds=outcome.holds,
            nominations=outcome.nominations,
        )
        envelope = Envelope(at_ms=NOW_S * 1_000, by="script", events=(event,))
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
            cards = lines.cards_of(placement.holdings)
            out.append(f"@{answer.seq} {placement.uid} → {placement.node} {cards} {end}")
        return out or [f"@{answer.seq} nothing placed"]

    # Outcomes

    def _decision_of(self, name: str) -> int:
        held = self.state.pods[name].allocation
        return held.seq if held is not None else 0

    def _bind(self, names: list[str], settings: Settings) -> Lines:
        out = []
        for name in names:
            held = self.state.pods[name].allocation
            if held is None:
                out.append(f"{name} has no place to be bound to")
                continue
            event = Bound(
                uid=name, namespace="default", name=name, node=held.node, decision=held.seq
            )
            at = self._append(subjects.OUTCOME, event)
            out.append(f"{at} {name} bound to {held.node} as @{held.seq} decided")
        return out

    def _fail(self, names: list[str], settings: Settings) -> Lines:
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

    def _evicted(self, names: list[str], settings: Settings) -> Lines:
        """The API server took evictions, or (with a code) refused them."""
        code = settings.get("code", "")
        out = []
        for name in names:
            asked = self.state.evicting[name]
            event = Evicted(
                uid=name,
                namespace="default",
                name=name,
                node=asked.node,
                decision=self.state.decision_seq,
                code=code,
            )
            at = self._append(subjects.OUTCOME, event)
            out.append(f"{at} {name} {f'stays, {code}' if code else 'is evicted'}")
        return out

    def _churn(self, names: list[str], settings: Settings) -> Lines:
        """`churn PREFIX times=N keep=M memory=…`: N times a pod comes, and the oldest of these that
        has a place goes if M have one; then all that waits is decided about. Only the sum is told.
        """
        (prefix,), first, came = names, self.log.last_seq + 1, []
        went = 0
        for _ in range(int(settings["times"])):
            placed = [uid for uid in self._placed() if uid.startswith(f"{prefix}-")]
            if len(placed) >= int(settings["keep"]):
                self.run(f"pod-gone {placed[0]}")
                went += 1
            came.append(f"{prefix}-{self.log.last_seq}")
            for line in (
                f"group {came[-1]}",
                f"pod {came[-1]} group={came[-1]} memory={settings['memory']}",
                f"cycle {came[-1]}",
                f"decide {came[-1]}",
            ):
                self.run(line)
        found = len(self._placed().keys() & {*came})
        last = self.log.last_seq
        return [
            f"@{first} … @{last} {went} pods went, {len(came)} came, {found} of these are placed"
        ]

    def _placed(self) -> dict[str, None]:
        """The pods that have a place, the oldest in front."""
        pods = self.state.pods.items()
        return {uid: None for uid, pod in pods if pod.allocation is not None}

    # Questions

    def _ledger(self, names: list[str], settings: Settings) -> Lines:
        return list(lines.of_ledger(self.state))

    def _held(self, names: list[str], settings: Settings) -> Lines:
        return list(lines.of_holds(self.state)) or ["nothing is held for anybody"]

    def _due(self, names: list[str], settings: Settings) -> Lines:
        state = self.state
        return [f"due: {' '.join(pod.fact.uid for pod in due(state, {})) or 'nobody'}"]
