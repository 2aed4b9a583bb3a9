"""What would make a waiting pod fit: asked apart from the pod's page, because it may take a while.

Each change is carried out alone, on the state of the moment, and asked of the very rules that
refuse the pod.
"""

from collections.abc import Mapping

import msgspec

from allotment.core.explain.pod import Advice, advise
from allotment.core.explain.pod_views import pod_status
from allotment.core.explain.schema import Change, Counterfactual
from allotment.core.explain.words import advice_title, fit_text
from allotment.core.reasons import REASONS
from allotment_inspector.history import Moment
from allotment_inspector.pages.found import NotFound
from allotment_inspector.pages.pod import no_pod
from allotment_inspector.said import typed


class ChangeRow(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A change in words, what it brings, and where it is made: a line of a manifest, or of another
    object's.
    """

    text: str
    then: str
    line: str
    change: Change


class AdvicePage(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What would make the pod fit, the smallest change first. Without any, `otherwise` says what
    can be done about the cause.
    """

    namespace: str
    name: str
    waits: bool
    title: str
    changes: tuple[ChangeRow, ...]
    otherwise: str


def view(
    moment: Moment, match: Mapping[str, str], query: Mapping[str, str]
) -> AdvicePage | NotFound:
    """The changes for the newest pod of a name that is there at the moment."""
    namespace, name = match["namespace"], match["name"]
    state = moment.state
    pods = [
        state.pods[uid] for uid in reversed(moment.pods_named(namespace, name)) if uid in state.pods
    ]
    if not pods:
        return no_pod(moment, namespace, name)
    pod = pods[0]
    waits = pod.allocation is None and pod.fact.uid in state.pending
    found = advise(state, pod.fact) if waits else Advice((), never=False)
    cause = REASONS.get(pod_status(state, pod)[1])
    return AdvicePage(
        namespace=namespace,
        name=name,
        waits=waits,
        title=advice_title(found.changes, never=found.never) if found.changes else "",
        changes=tuple(change_row(each, fit_text(each)) for each in found.changes),
        otherwise="" if found.changes or cause is None else cause.advice,
    )


def command(match: Mapping[str, str], query: Mapping[str, str]) -> str:
    """What to type for the same answer."""
    return typed("allot", "explain", "pod", f"{match['namespace']}/{match['name']}", "{at}")


def change_row(found: Counterfactual, then: str) -> ChangeRow:
    """A change as a row."""
    return ChangeRow(text=found.text, then=then, line=_line(found.change), change=found.change)


_OF_A_MANIFEST = frozenset(("metadata", "spec"))
"""Where a pointer begins that is one into a manifest; others are about this explanation."""


def _line(change: Change) -> str:
    """Where the change is made, as one writes paths and values of manifests; empty where what is
    asked for is spread over several lines.
    """
    steps = [step.replace("~1", "/").replace("~0", "~") for step in change.path.split("/")[1:]]
    if not steps or steps[0] not in _OF_A_MANIFEST:
        return ""
    is_key = len(steps) > 2 and steps[-2] in ("annotations", "labels", "nodeSelector")
    path = f"{'.'.join(steps[:-1])}: {steps[-1]}" if is_key else ".".join(steps)
    of = f"{change.target}, " if change.target else ""
    if change.op == "remove":
        return f"{of}− {path}"
    value = change.value
    if isinstance(value, dict):
        shown = ", ".join(f"{key}={each}" for key, each in value.items())
    elif isinstance(value, tuple):
        shown = ",".join(value)
    else:
        shown = str(value).lower() if isinstance(value, bool) else str(value)
    return f"{of}{path}: {shown}"
