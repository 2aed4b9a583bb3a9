"""What is asked of nodes for a waiting pod: its own request, within the bounds that its queue sets.

Made afresh from a state, by the code that opens a round; a round that finds the same state asks the
same.
"""

import msgspec

from allotment.core.explain.session import open_bench
from allotment.core.ledger.model import ClusterState
from allotment.core.ledger.volumes import taken
from allotment.core.placement.rules.bounds import Bounds, bounded, bounds_of
from allotment.core.placement.rules.local_volumes import within
from allotment.core.queues.reservations import fence
from allotment.core.queues.round.bounding import Bounding
from allotment.core.queues.round.views import SINGLE
from allotment_proto.events import PodObserved


def asked_for(state: ClusterState, fact: PodObserved) -> tuple[PodObserved, ...]:
    """The pod as its round looks for a place: once for each choice of cards that it may have, the
    preferred first, and first on the node that it was promised; on nodes from which it can reach a
    volume for each of its claims. As it is, if neither queues nor volumes have a say.
    """
    if fact.uid not in state.pending:
        return (fact,)
    if fact.local_claims:
        request = within(fact.request, fact, state, taken(state))
        fact = msgspec.structs.replace(fact, request=request)
    if not state.is_batched:
        return (fact,)
    bench = open_bench(state)
    session = bench.session
    job = session.jobs.get(fact.group or SINGLE + fact.uid)
    if job is None or fact.uid not in job.tasks:
        return (fact,)
    task = job.tasks[fact.uid]
    fenced = fence(session, bench.holds)
    anywhere = fenced.limits(job)
    if fenced.allocatable(job, task) is None:
        anywhere = fenced.limits_of(job, task, anywhere)
    promised = fenced.node_of(job, task)
    bounding = Bounding(state)
    return tuple(
        _bounded(fact, bounding.bounds(limits, cards))
        for limits in ((anywhere._replace(node=promised), anywhere) if promised else (anywhere,))
        for cards in limits.choices
    )


def _bounded(fact: PodObserved, bounds: Bounds) -> PodObserved:
    always = (*bounds_of(fact.request).always, *bounds.always)
    request = bounded(fact.request, bounds._replace(always=always))
    return msgspec.structs.replace(fact, request=request)
