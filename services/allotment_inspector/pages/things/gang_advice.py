"""What would let a gang start: asked apart from the gang's page, because it may take a while."""

from collections.abc import Mapping

import msgspec

from allotment.core.explain.gang import advise
from allotment.core.explain.rows.words import gang_advice_title
from allotment_inspector.history import Moment
from allotment_inspector.pages.parts.changes import ChangeRow, change_row
from allotment_inspector.pages.parts.found import NotFound
from allotment_inspector.pages.things import gang
from allotment_inspector.said import Bit, pod_link


class GangAdvicePage(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What would let the gang start, the smallest change first. With `member` the changes are those
    of that pod: without it the gang cannot start, and not even empty nodes take it as it is.
    """

    key: str
    title: str
    changes: tuple[ChangeRow, ...]
    member: Bit | None


def view(
    moment: Moment, match: Mapping[str, str], query: Mapping[str, str]
) -> GangAdvicePage | NotFound:
    """The changes for the gang at the moment."""
    key = gang.key_of(match)
    if key not in moment.state.groups:
        return gang.no_gang(moment, key)
    found = advise(moment.state, key)
    return GangAdvicePage(
        key=key,
        title=gang_advice_title(found.changes) if found.changes else "",
        changes=tuple(map(change_row, found.changes)),
        member=pod_link(match["namespace"], found.member) if found.member else None,
    )


def command(moment: Moment, match: Mapping[str, str], query: Mapping[str, str]) -> str:
    """What to type for the same answer."""
    return gang.command(moment, match, query)
