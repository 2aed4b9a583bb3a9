"""A state machine of everything that the log can be told, in any order.

The rules append to a log; the simulation's auditor reads each record as it lands and compares the
fold with a dumb list of shares. Decisions are made on stale copies of the state and appended
without asking again, so that everything rests on the fold's own check.
"""

from typing import Any

import msgspec
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from allotment.core.ledger import snapshot
from allotment.core.logport import Record
from allotment.core.placement.cycle import recheck, run_cycle, stamped
from allotment.core.placement.evaluator import Evaluator, Trial
from allotment_proto import subjects
from allotment_proto.codec import encode
from allotment_proto.events import (
    BindFailed,
    Bound,
    Corrected,
    Decided,
    Envelope,
    Event,
    NodeGone,
    PodGone,
    PodObserved,
    PolicyLoaded,
    TimePassed,
)
from allotment_proto.facts import Problem
from allotment_proto.observed import Death
from tests import build
from tests import strategies as own
from tests.sim.auditor import Auditor
from tests.sim.follower import Follower

HOMES: dict[type, str] = {
    Decided: subjects.DECISION,
    **dict.fromkeys((Bound, BindFailed, Corrected), subjects.OUTCOME),
}
"""Where the binder appends what; the rest are facts."""


UNREAD = (build.wants(0, 25, memory_pct=50), build.wants(3_000, family="gpushare"))


class Fold(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.auditor = Auditor()
        self.records: list[Record] = []
        self.rv = 1
        self.bound_to: dict[str, str] = {}

    @property
    def state(self) -> Any:
        return self.auditor.follower.state

    def append(self, *events: Event) -> None:
        payload = encode(Envelope(v=1, at_ms=0, by="test", events=events))
        seq = len(self.records) + 1
        homes = {HOMES.get(type(event), subjects.FACTS) for event in events} or {subjects.FACTS}
        (subject,) = homes
        self.records.append(Record(seq, subject, payload, seq, str(seq)))
        self.auditor.audit(self.records)

    def next_rv(self, stale: bool) -> int:
        self.rv += 1
        return self.rv // 2 if stale else self.rv

    @initialize(policy=own.policies)
    def load_policy(self, policy: Any) -> None:
        self.append(PolicyLoaded(policy=policy, source="", text_sha256=""))

    @rule(data=st.data(), name=st.sampled_from(own.NODES), stale=st.integers(0, 9))
    def node_appears_or_changes(self, data: st.DataObject, name: str, stale: int) -> None:
        self.append(data.draw(own.nodes(name, self.next_rv(stale == 0))))

    @rule(name=st.sampled_from(own.NODES), same=st.booleans())
    def node_goes(self, name: str, same: bool) -> None:
        node = self.state.nodes.get(name)
        uid = node.fact.uid if node and node.fact and same else "another"
        self.append(NodeGone(name=name, uid=uid, rv=self.next_rv(False)))

    @rule(data=st.data(), uids=st.lists(st.sampled_from(own.PODS), unique=True, max_size=4))
    def pods_appear(self, data: st.DataObject, uids: list[str]) -> None:
        fresh = [uid for uid in uids if uid not in self.bound_to]
        self.append(*(data.draw(own.pods(uid, self.next_rv(False))) for uid in fresh))

    @rule(
        uid=st.sampled_from(own.PODS),
        node=st.sampled_from(own.NODES),
        held=own.holdings,
        percent=st.sampled_from(((), ((0, 25),), ((0, 100), (1, 30)))),
        unread=st.sampled_from((None, None, (), (build.wants(1_000, 10, 2),), UNREAD)),
    )
    def a_stranger_binds(self, uid: str, node: str, held: Any, percent: Any, unread: Any) -> None:
        """`unread`: the requests of which nobody can read where they are; None if all can."""
        node = self.bound_to.setdefault(uid, node)
        broken = None if unread is None else Problem("BrokenAssignment", "annotation", "is cut off")
        self.see(
            uid,
            node=node,
            holdings=held,
            shares_pct=percent,
            broken=broken,
            unplaced=unread or (),
        )

    @rule(uid=st.sampled_from(own.PODS), phase=st.sampled_from(("Running", "Succeeded")))
    def a_pod_is_seen_where_it_was_placed(self, uid: str, phase: str) -> None:
        pod = self.state.pods.get(uid)
        if pod is not None and pod.allocation is not None:
            held = pod.allocation
            node = self.bound_to.setdefault(uid, held.node)
            self.see(uid, node=node, holdings=held.holdings, phase=phase)

    @rule(
        uid=st.sampled_from(own.PODS),
        how=st.sampled_from(
            (
                {"phase": "Failed", "reason": "UnexpectedAdmissionError"},
                {"phase": "Failed", "died": Death("main", "Error", 1)},
                {"phase": "Running", "died": Death("main", "Error", 1)},
            )
        ),
        image=st.sampled_from(("", "i")),
    )
    def a_pod_fails_where_it_was_placed(self, uid: str, how: dict[str, Any], image: str) -> None:
        pod = self.state.pods.get(uid)
        if pod is not None and pod.allocation is not None:
            held = pod.allocation
            node = self.bound_to.setdefault(uid, held.node)
            self.see(uid, node=node, holdings=held.holdings, image=image, **how)

    @rule(after_ms=st.sampled_from((1, 15_000, 900_000)))
    def time_passes(self, after_ms: int) -> None:
        self.append(TimePassed(at_ms=self.state.time_ms + after_ms))

    def see(self, uid: str, **changes: Any) -> None:
        pod = self.state.pods.get(uid)
        if pod is not None:
            self.append(msgspec.structs.replace(pod.fact, rv=self.next_rv(False), **changes))

    @rule(
        uid=st.sampled_from(own.PODS), grace_s=st.sampled_from((0, 100)), at_s=st.integers(0, 400)
    )
    def a_pod_is_being_deleted(self, uid: str, grace_s: int, at_s: int) -> None:
        self.see(uid, deleting=True, grace_s=grace_s, deadline_ms=at_s * 1000)

    @rule(uid=st.sampled_from(own.PODS))
    def pod_goes(self, uid: str) -> None:
        self.bound_to.pop(uid, None)
        self.auditor.nodes_of_pods.pop(uid, None)
        self.append(PodGone(uid=uid, namespace="", name="", rv=self.next_rv(False)))

    @rule(policy=own.policies, ours=st.booleans())
    def policy_changes(self, policy: Any, ours: bool) -> None:
        names = ("allotment", "other") if ours else ("allotment",)
        policy = msgspec.structs.replace(policy, scheduler_names=names)
        self.append(PolicyLoaded(policy=policy, source="", text_sha256=""))

    @rule(
        back=st.integers(0, 4),
        batch=st.lists(st.sampled_from(own.PODS), min_size=1, max_size=6),
        asks_again=st.booleans(),
    )
    def a_cycle_is_decided(self, back: int, batch: list[str], asks_again: bool) -> None:
        """On a state `back` records old; with a recheck, nothing of it may be void."""
        basis = max(len(self.records) - back, 0)
        old = Follower()
        old.follow(self.records, basis)
        outcome = run_cycle(old.state, batch, old.evaluator)
        placements = list(outcome.placements)
        if asks_again:
            trial = Trial(self.state)
            placements = [p for p in placements if recheck(self.state, trial, p) is None]
            placements = stamped(self.state, placements, 0)
        self.append(
            Decided(
                cycle="c",
                basis=basis,
                checked=len(self.records),
                policy=old.state.policy_seq,
                batch=tuple(batch),
                placements=tuple(placements),
                refusals=outcome.refusals,
            )
        )
        if asks_again:
            seq = len(self.records)
            void = [p.uid for p in placements if self.state.voided.get(p.uid) == seq]
            assert not void, "the recheck let through what the fold does not cover"

    @rule(uid=st.sampled_from(own.PODS), back=st.integers(0, 6), fails=st.booleans())
    def an_outcome_lands(self, uid: str, back: int, fails: bool) -> None:
        """Of this decision or of another, once or again."""
        decision = max(len(self.records) - back, 0)
        if fails:
            self.append(
                BindFailed(
                    uid=uid, namespace="", name="", node="", decision=decision, code="", message=""
                )
            )
        else:
            self.append(Bound(uid=uid, namespace="", name="", node="", decision=decision))

    @precondition(lambda self: self.records)
    @rule(uid=st.sampled_from(own.PODS), held=own.holdings, back=st.integers(0, 1))
    def a_pod_is_found_to_hold_other_cards(self, uid: str, held: Any, back: int) -> None:
        pod = self.state.pods.get(uid)
        was = None if pod is None else pod.allocation
        name = {"uid": uid, "namespace": "", "name": ""}
        self.append(
            Corrected(
                **name,
                node="" if was is None else was.node,
                decision=0 if was is None else max(was.seq - back, 0),
                holdings=held,
                was=() if was is None else was.holdings,
                code="Misdelivered",
                message="",
                served="a/b",
            )
        )

    @rule(data=st.data())
    def an_old_record_lands_again(self, data: st.DataObject) -> None:
        """Facts of pods that a stranger moved meanwhile are left out: they would move them back."""
        again = data.draw(st.sampled_from(self.records))
        events = [
            event
            for event in msgspec.json.decode(again.payload, type=Envelope).events
            if not (isinstance(event, PodObserved) and event.node)
            and not (isinstance(event, PodObserved) and event.uid in self.bound_to)
            and not isinstance(event, PodGone)
        ]
        self.append(*events)

    @invariant()
    def a_cache_answers_like_a_fresh_one(self) -> None:
        fresh = Evaluator(self.state)
        for pod in self.state.pods.values():
            request = pod.fact.request
            cached = self.auditor.follower.evaluator.verdicts(request)
            assert dict(cached) == dict(fresh.verdicts(request))

    def teardown(self) -> None:
        """From zero, and from a snapshot at any cut, the fold ends in the same bytes."""
        image = snapshot.encode(self.state)
        for cut in range(0, len(self.records) + 1, 3):
            first = Follower()
            first.follow(self.records, cut)
            second = Follower(snapshot.encode(first.state))
            second.follow(self.records, len(self.records))
            assert snapshot.encode(second.state) == image
            assert second.state.seq == len(self.records)
