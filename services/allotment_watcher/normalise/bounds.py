"""How much of one object reaches the log. What is larger is refused by name, or cut.

Every service reads each record, and keeps what it says of an object for as long as that exists. So
one object's text must not grow as its owner likes.
"""

from collections.abc import Collection, Iterable

import msgspec

from allotment.core import reasons
from allotment.core.units import cut
from allotment_proto.events import GroupObserved, PodObserved, QueueObserved
from allotment_proto.facts import Company, Constraints, PodRequest, Problem

RESOURCE_NAMES_MAX = 32
"""Different resources that one object may name: each is a row of totals, boards and metrics."""
FACT_BYTES_MAX = 48 * 1024
"""Of one pod, without the volumes that its claims can have: those are the cluster's."""
BATCH_BYTES_MAX = 16 * 1024
"""Of one PodGroup or Queue."""
NAME_CHARS_MAX = 253
"""Of an object's name in Kubernetes: a longer one names nothing."""


def too_many_names(names: Iterable[str], place: str) -> Problem | None:
    """Why an object may not name so many resources; None if it may."""
    number = len(set(names))
    if number <= RESOURCE_NAMES_MAX:
        return None
    text = f"{number} different resources; at most {RESOURCE_NAMES_MAX} are accepted"
    return Problem(reasons.INVALID_REQUEST, place, text)


def bounded_pod(fact: PodObserved) -> PodObserved:
    """The fact, or what is left of one that is too large: a pod that waits is rejected by name; of
    one that has a node remains what it takes there.
    """
    size_bytes = _size(msgspec.structs.replace(fact, local_claims=()))
    if size_bytes <= FACT_BYTES_MAX:
        return fact
    text = (
        f"takes {size_bytes} bytes in the log; at most {FACT_BYTES_MAX} are accepted: shorten its "
        "labels, annotations and rules"
    )
    return cut_pod(fact, Problem(reasons.INVALID_REQUEST, "the pod object", text))


def cut_pod(fact: PodObserved, problem: Problem) -> PodObserved:
    """The fact without what an owner can make large."""
    return msgspec.structs.replace(
        fact,
        request=taken(fact.request) if fact.node else PodRequest(),
        problem=problem,
        asks=None,
        labels=(),
        tags=(),
        annotated=(),
        misnamed=(),
        card_names=(),
        card_resources=(),
        claims=(),
        local_claims=(),
        group=_name(fact.group, 2 * NAME_CHARS_MAX),
        role=_name(fact.role),
        queue=_name(fact.queue),
    )


def taken(request: PodRequest, listed: Collection[str] | None = None) -> PodRequest:
    """Of a request what a pod takes of its node; of the resources only those that are `listed`."""
    extended = request.extended
    if listed is not None:
        extended = tuple(pair for pair in extended if pair[0] in listed)
    return msgspec.structs.replace(
        request,
        extended=extended,
        constraints=Constraints(),
        company=Company(ports=request.company.ports, sole=request.company.sole),
        images=(),
    )


def bounded_group(fact: GroupObserved) -> GroupObserved:
    """The fact, or what is left of one that is too large: what grew counts as if not given."""
    problem = _too_large(fact)
    if problem is None:
        return fact
    return msgspec.structs.replace(
        fact,
        queue=_name(fact.queue),
        priority_class=_name(fact.priority_class),
        phase=_name(fact.phase),
        min_task_member=(),
        min_resources=None,
        card_request=(),
        sub_groups=(),
        task_topology=None,
        problem=problem,
    )


def queue_excess(fact: QueueObserved) -> str:
    """Why a queue is too large to be read, or empty. None of its quotas may be dropped."""
    problem = _too_large(fact)
    return "" if problem is None else problem.message


def _too_large(fact: GroupObserved | QueueObserved) -> Problem | None:
    size_bytes = _size(fact)
    if size_bytes <= BATCH_BYTES_MAX:
        return None
    text = (
        f"takes {size_bytes} bytes in the log; at most {BATCH_BYTES_MAX} are accepted: resources, "
        "roles, sub groups and annotations are ignored"
    )
    return Problem(reasons.INVALID_REQUEST, "the object", text)


def _name(text: str, most: int = NAME_CHARS_MAX) -> str:
    return cut(text, most)


def _size(fact: PodObserved | GroupObserved | QueueObserved) -> int:
    return len(msgspec.json.encode(fact))
