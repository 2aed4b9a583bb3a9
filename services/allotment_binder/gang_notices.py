"""Notices for pods whose group waits: one each, until the cause is another.

A pod that was refused itself has its own reason; the others hear the state of their group, or why
its queue does not admit it.
"""

from collections.abc import Iterator

from allotment.core.ledger.model import ClusterState, Group
from allotment.core.reasons import condition_reason, gate_text
from allotment_binder.causes import Causes
from allotment_binder.group_status import tail_of
from allotment_binder.notices import Notices, Refused
from allotment_proto.events import Decided

REMEMBERED_MIN = 1000


class GangNotices:
    """Remembers the notices of members."""

    def __init__(self, notices: Notices | Causes) -> None:
        self._notices = notices
        self._told: dict[str, str] = {}

    def begin(self, state: ClusterState) -> None:
        """Make members' conditions match the log; Events were written when it was news."""
        self._told.clear()
        for group in state.groups.values():
            self._put(state, group, is_news=False)

    def landed(self, state: ClusterState, decided: Decided) -> None:
        """Tell the members of the groups that a decision is about."""
        for refusal in decided.refusals:
            self._told.pop(refusal.uid, None)
        about = dict.fromkeys(
            [s.group for s in decided.shorts] + [a.group for a in decided.admissions if a.code]
        )
        for key in about:
            group = state.groups.get(key)
            if group is not None:
                self._put(state, group, is_news=True)
        if len(self._told) > 2 * len(state.pending) + REMEMBERED_MIN:
            self._told = {uid: text for uid, text in self._told.items() if uid in state.pending}

    def _put(self, state: ClusterState, group: Group, *, is_news: bool) -> None:
        because = waits_because(group)
        if not because:
            return
        reason = condition_reason(_code(group))
        for uid in _untold(state, group):
            fact = state.pods[uid].fact
            if self._told.get(uid) != because:
                self._told[uid] = because
                self._notices.put(Refused(uid, fact.namespace, fact.name, because, is_news, reason))


def waits_because(group: Group) -> str:
    """Why a group waits, for its members; empty if nothing was decided against it."""
    if group.gate is not None and group.gate.code:
        return f"{group.gate.code}: {gate_text(group.gate)}"
    return "" if group.short is None else tail_of(group.short.message)


def _code(group: Group) -> str:
    """The reason code of the same."""
    gated = group.gate.code if group.gate is not None else ""
    return gated or (group.short.code if group.short is not None else "")


def _untold(state: ClusterState, group: Group) -> Iterator[str]:
    """Members that wait, and for no reason of their own."""
    for uid in group.members:
        if uid in state.pending and state.pods[uid].refusal is None:
            yield uid
