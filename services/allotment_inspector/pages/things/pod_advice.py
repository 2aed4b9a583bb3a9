"""What would make a waiting pod fit: asked apart from the pod's page, because it may take a while.

Each change is carried out alone, on the state of the moment, and asked of the very rules that
refuse the pod.
"""

from collections.abc import Mapping

import msgspec

from allotment.core.explain.causes.why import Whys
from allotment.core.explain.pod import advise
from allotment.core.explain.rows.words import advice_title
from allotment.core.reasons import REASONS
from allotment_inspector.history import Moment
from allotment_inspector.pages.parts.changes import ChangeRow, change_row
from allotment_inspector.pages.parts.found import NotFound
from allotment_inspector.pages.things.pod import no_pod
from allotment_inspector.said import Bit, group_link, typed


class AdvicePage(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What would make the pod fit, the smallest change first. With `gang` the pod starts together
    with others, and each change is one that lets all of them start. Without any, `otherwise` says
    what can be done about the cause.
    """

    namespace: str
    name: str
    waits: bool
    title: str
    changes: tuple[ChangeRow, ...]
    otherwise: str
    gang: Bit | None


def view(
    moment: Moment, match: Mapping[str, str], query: Mapping[str, str]
) -> AdvicePage | NotFound:
    """The changes for the newest pod of a name that exists at the moment."""
    namespace, name = match["namespace"], match["name"]
    state = moment.state
    pods = [
        state.pods[uid] for uid in reversed(moment.pods_named(namespace, name)) if uid in state.pods
    ]
    if not pods:
        return no_pod(moment, namespace, name)
    pod = pods[0]
    waits = pod.allocation is None and pod.fact.uid in state.pending
    changes, never = advise(state, pod.fact) if waits else ((), False)
    is_of_gang = any(each.members_fit is not None for each in changes)
    cause = REASONS.get(Whys(state).of(pod).code)
    return AdvicePage(
        namespace=namespace,
        name=name,
        waits=waits,
        title=advice_title(changes, never=never) if changes else "",
        changes=tuple(change_row(each) for each in changes),
        otherwise="" if changes or cause is None else cause.advice,
        gang=group_link(pod.fact.group) if is_of_gang else None,
    )


def command(moment: Moment, match: Mapping[str, str], query: Mapping[str, str]) -> str:
    """What to type for the same answer."""
    return typed("allot", "explain", "pod", f"{match['namespace']}/{match['name']}", at=moment.at)
