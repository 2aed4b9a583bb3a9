"""Would these pods fit now: a round over pods that are not in the cluster, and what keeps the
others from fitting.

The state must be the caller's own, because this changes it: the pods are in it as if they had just
been created, and those that find a place take it. The others are explained like any pod that waits.
"""

from collections.abc import Hashable, Iterable, Sequence
from typing import NamedTuple

import msgspec

from allotment.core.explain.causes.advice import advice
from allotment.core.explain.causes.nodes import funnel
from allotment.core.explain.causes.why import Whys
from allotment.core.explain.pod import beside, is_barred
from allotment.core.explain.rows.pod_views import request_of
from allotment.core.explain.rows.schema import (
    AsOf,
    Counterfactual,
    Lack,
    Quota,
    Reason,
    Request,
    Step,
    quota_of,
    reason_of,
)
from allotment.core.explain.rows.views import device_name
from allotment.core.ledger.model import ClusterState
from allotment.core.ledger.state import apply
from allotment.core.placement.cycle import notes_of, stamped
from allotment.core.placement.rules.interpod import situated
from allotment.core.placement.rules.models import parts_note
from allotment.core.placement.unserved import unserved
from allotment.core.queues.round.verdict import PodVerdict, round_outcome
from allotment.core.reasons import NO_NODES, OF_CLUSTER, REASONS, problem_text
from allotment.core.units import rfc3339
from allotment_proto.events import Decided, Placement, PodObserved, Refusal
from allotment_proto.facts import PodRequest

_FIT_SCHEMA = "allotment.dev/fit/v1"


class FitPod(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One pod: where it would go, or why it finds no place. `nodes_fit` counts the nodes that take
    it, next to those of the manifests before it. `fits_empty_cluster` false: it can never fit;
    absent where there is no node.
    """

    namespace: str
    name: str
    fits: bool
    request: Request
    node: str = ""
    devices: tuple[str, ...] = ()
    nodes_fit: int = 0
    nodes: int = 0
    cause: str = ""
    problem: str = ""
    refused: Reason | None = None
    quota: tuple[Quota, ...] = ()
    notes: tuple[str, ...] = ()
    fits_empty_cluster: bool | None = None
    funnel: tuple[Step, ...] = ()
    lacks: tuple[Lack, ...] = ()
    counterfactuals: tuple[Counterfactual, ...] = ()


class Fit(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a round would do with pods that are made now. `skipped`: documents without pods;
    `assumed`: assumptions about their cluster.
    """

    schema: str
    as_of: AsOf
    pods: tuple[FitPod, ...]
    skipped: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()


def fit(
    state: ClusterState,
    uids: Sequence[str],
    seq: int,
    as_of_ms: int,
    skipped: Sequence[str] = (),
) -> Fit:
    """Ask a round for the pods of a state with these uids. `seq` is that of the log, which ends
    before them.
    """
    outcome = round_outcome(state, uids)
    placed = {placement.uid: placement for placement in outcome.placements}
    decided = Decided(
        cycle="fit",
        basis=state.seq,
        checked=state.seq,
        policy=state.policy_seq,
        batch=tuple(uids),
        placements=tuple(stamped(state, outcome.placements, as_of_ms // 1000)),
        wholes=outcome.wholes,
    )
    apply(state, decided, state.seq + 1)  # the others find what these leave
    refused = {refusal.uid: refusal for refusal in outcome.refusals}
    unplaced = _Unplaced(state, placed.keys())
    pods = []
    for uid in uids:
        fact = state.pods[uid].fact
        if uid in placed:
            pods.append(_placed(state, fact, placed[uid]))
        else:
            pods.append(unplaced.explained(fact, refused.get(uid)))
    return Fit(
        schema=_FIT_SCHEMA,
        as_of=AsOf(seq=seq, time=rfc3339(as_of_ms), time_ms=as_of_ms),
        pods=tuple(pods),
        skipped=tuple(skipped),
    )


def _placed(state: ClusterState, fact: PodObserved, placement: Placement) -> FitPod:
    node = state.nodes[placement.node]
    return FitPod(
        namespace=fact.namespace,
        name=fact.name,
        fits=True,
        request=request_of(fact.request),
        node=placement.node,
        devices=tuple(device_name(node, holding) for holding in placement.holdings),
        nodes_fit=placement.feasible,
        nodes=placement.nodes,
    )


class _Nodes(NamedTuple):
    """What the nodes answer to a request."""

    answers: Sequence[str]
    funnel: tuple[Step, ...]
    lacks: tuple[Lack, ...]
    notes: tuple[str, ...]
    ever: bool | None
    """Whether a node would take it if it was empty; None if the cluster has no node."""


class _Unplaced:
    """The pods that found no place, explained. A state is asked once for all of them, the nodes
    once for each request, and what would help once for each group, or for pods that are equal.
    """

    def __init__(self, state: ClusterState, placed: Iterable[str]) -> None:
        self._state = state
        facts = (state.pods[uid].fact for uid in placed)
        self._placed = frozenset(f"{fact.namespace}/{fact.name}" for fact in facts)
        self._whys = Whys(state)
        self._nodes: dict[PodRequest, _Nodes] = {}
        self._advice: dict[Hashable, tuple[Counterfactual, ...]] = {}

    def explained(self, fact: PodObserved, refusal: Refusal | None) -> FitPod:
        """One of them, and what its round said of it."""
        state, problem = self._state, fact.problem
        if problem is None and refusal is not None and not refusal.nodes:
            problem = refusal.problem
        bare = FitPod(
            namespace=fact.namespace,
            name=fact.name,
            fits=False,
            request=request_of(fact.request),
            problem="" if problem is None else problem_text(problem),
            notes=beside(state, fact, waits=True),
        )
        if fact.problem is not None or fact.uid not in state.pending:
            return bare
        ruled = self._whys.ruled(fact)
        if ruled.no is not None:
            bare = msgspec.structs.replace(bare, problem="")  # it is the cause, with its reasons
        asked = situated(ruled.tries[-1], state)
        if asked not in self._nodes:
            self._nodes[asked] = self._asked_nodes(asked)
        nodes = self._nodes[asked]
        no = ruled.no if nodes.answers or is_barred(ruled.no) else None
        if no is not None and no.code in OF_CLUSTER and nodes.ever is False:
            no = None  # no pod's end would help: the nodes are why, as `Whys` has it
        cause = nodes.lacks[0].code if nodes.lacks else "" if nodes.answers else NO_NODES
        return msgspec.structs.replace(
            bare,
            nodes=len(nodes.answers),
            nodes_fit=nodes.funnel[-1].left,
            cause=cause if no is None else no.code,
            refused=None if no is None else reason_of(no),
            quota=() if no is None else quota_of(ruled.short),
            notes=bare.notes + nodes.notes,
            fits_empty_cluster=nodes.ever,
            funnel=nodes.funnel,
            lacks=nodes.lacks,
            counterfactuals=self._advised(fact, ruled, asked, never=nodes.ever is False),
        )

    def _asked_nodes(self, asked: PodRequest) -> _Nodes:
        state = self._state
        said = self._whys.nodes(asked)
        answers = said.answers
        steps = tuple(funnel(answers))
        counted = {code: n for step in steps for code, n in step.reasons.items()}
        absent = () if answers else (REASONS[NO_NODES].text,)
        return _Nodes(
            answers=answers,
            funnel=steps,
            lacks=said.lacks,
            notes=absent
            + notes_of(state, asked, counted.items())
            + unserved(state, asked)
            + parts_note(asked, state),
            ever=said.ever,
        )

    def _advised(
        self, fact: PodObserved, ruled: PodVerdict, asked: PodRequest, *, never: bool
    ) -> tuple[Counterfactual, ...]:
        """What would help, without the end of pods that are not in the cluster."""
        key: Hashable = asked
        if not never and self._state.is_gang(fact.group):
            key = fact.group
        elif not never and ruled.no is not None:
            alike = msgspec.structs.replace(fact, uid="", name="", rv=0, created_ms=0)
            key = asked, alike, ruled.no.code, ruled.no.queue
        if key not in self._advice:
            self._advice[key] = tuple(
                each
                for each in advice(self._state, fact, ruled, asked, never=never)
                if each.change.path != "/pods" or not self._ends(each.change.value)
            )
        return self._advice[key]

    def _ends(self, names: object) -> bool:
        """Whether a change ends a pod that is not in the cluster."""
        return isinstance(names, tuple) and not self._placed.isdisjoint(names)
