"""PodDisruptionBudgets, asked about several pods at once.

The API server answers each eviction alone: of two pods under a budget that allows one disruption it
would let each go. So the pods of one set are counted against what their budgets still allow.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar

import msgspec

from allotment.adapters.kube.client import KubeClient, pod_path
from allotment.adapters.kube.result import KubeResult, Ok, Refused
from allotment.core.placement.rules.selectors import holds
from allotment_proto.codec import UNREADABLE
from allotment_proto.events import Eviction
from allotment_proto.facts import Expression

_T = TypeVar("_T")


class _Meta(msgspec.Struct):
    name: str = ""
    labels: dict[str, str] | None = None


class _Requirement(msgspec.Struct):
    key: str = ""
    operator: str = ""
    values: list[str] | None = None


class _Selector(msgspec.Struct, rename="camel"):
    match_labels: dict[str, str] | None = None
    match_expressions: list[_Requirement] | None = None


class _Spec(msgspec.Struct):
    selector: _Selector | None = None


class _Allowed(msgspec.Struct, rename="camel"):
    disruptions_allowed: int = 0


class _Budget(msgspec.Struct):
    metadata: _Meta = msgspec.field(default_factory=_Meta)
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Allowed = msgspec.field(default_factory=_Allowed)


class _Budgets(msgspec.Struct):
    items: list[_Budget] | None = None


class _Condition(msgspec.Struct):
    type: str = ""
    status: str = ""


class _PodStatus(msgspec.Struct):
    conditions: list[_Condition] | None = None


class _Pod(msgspec.Struct):
    metadata: _Meta = msgspec.field(default_factory=_Meta)
    status: _PodStatus = msgspec.field(default_factory=_PodStatus)


class BudgetsUnknownError(Exception):
    """Raised with the server's words when budgets, or pods under them, cannot be read."""


async def beyond_budgets(
    client: KubeClient, namespace: str, evictions: Sequence[Eviction]
) -> dict[str, str]:
    """Which pods of one namespace may not go together with those before them: uid → budget.

    A pod that is not ready takes nothing from a budget. Raises BudgetsUnknownError.
    """
    path = f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets"
    budgets = _read(await client.list(path), _Budgets).items or []
    left = [budget.status.disruptions_allowed for budget in budgets]
    beyond: dict[str, str] = {}
    for eviction in evictions if budgets else ():
        answer = await client.get(pod_path(namespace, eviction.name))
        if isinstance(answer, Refused) and answer.status == 404:
            continue
        pod = _read(answer, _Pod)
        if not any(c.type == "Ready" and c.status == "True" for c in pod.status.conditions or ()):
            continue
        labels = pod.metadata.labels or {}
        over = [n for n, budget in enumerate(budgets) if _selects(budget.spec.selector, labels)]
        full = next((n for n in over if left[n] <= 0), None)
        if full is not None:
            beyond[eviction.uid] = budgets[full].metadata.name
            continue
        for n in over:
            left[n] -= 1
    return beyond


def _selects(selector: _Selector | None, labels: Mapping[str, str]) -> bool:
    """Whether a budget is about a pod with these labels; without a selector it is about none."""
    return selector is not None and all(
        holds(each, labels.get(each.key)) for each in _expressions(selector)
    )


def _expressions(selector: _Selector) -> Iterator[Expression]:
    for key, value in (selector.match_labels or {}).items():
        yield Expression(key, "In", (value,))
    for each in selector.match_expressions or ():
        yield Expression(each.key, each.operator, tuple(each.values or ()))


def _read(answer: KubeResult, kind: type[_T]) -> _T:
    if not isinstance(answer, Ok):
        raise BudgetsUnknownError(answer.message)
    try:
        return msgspec.json.decode(answer.body, type=kind)
    except UNREADABLE as error:
        raise BudgetsUnknownError(str(error)) from error
