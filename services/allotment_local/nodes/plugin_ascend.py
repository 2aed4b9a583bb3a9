"""HAMi's device plugin for Ascend chips: one for each kind of chip on the node.

It asks which pod waits on the node, whatever that waits for, and hands out the first container's
devices that are left. Source: HAMi `ascend-device-plugin` `internal/server` (deviceshare 6.8).
"""

from collections.abc import Mapping, Sequence

from allotment_local.nodes.books import CardKey, Grant
from allotment_local.nodes.inventory import ASCEND
from allotment_local.nodes.pending import Waiting
from allotment_local.nodes.plugin_env import ascend_env, ascend_soft_env
from allotment_local.nodes.serving import PluginContext, Record, Served
from allotment_proto.facts import CardFact, Problem
from allotment_proto.volcano import ascend, keys, node_lock
from allotment_proto.volcano.ascend import Detail
from allotment_proto.volcano.vgpu import Entry


class AscendPlugin:
    """All of a node's plugins for Ascend chips."""

    def __init__(self, context: PluginContext, cards: Sequence[CardFact], *, soft: bool) -> None:
        self._context = context
        self._cards = {card.id: card for card in cards}
        self._soft = soft

    def allocate(self, common_word: str, amount: int) -> Served | str:
        """Serve one container's request of one kind of chip; a text says why not."""
        context = self._context
        waiting = context.pending.pick_ascend(context.node, self._named())
        if waiting is None:
            return f"get pending pod error: no binding pod found on node {context.node}"
        annotations = context.annotations(waiting)
        groups, problems = ascend.decode_assignment(
            annotations.get(keys.hami_to_allocate(common_word), ""), common_word
        )
        details = self._details(annotations, common_word)
        if isinstance(details, str):
            return self._failed(waiting, details)
        position = next((number for number, group in enumerate(groups) if group), None)
        if problems or position is None:
            why = problems[0].message if problems else "no pending device allocation found"
            return self._failed(waiting, f"get next container devices: {why}")
        entries = groups[position]
        if len(entries) != amount:
            why = f"annotation has {len(entries)}, request has {amount}"
            return self._failed(waiting, f"device number not matched: {why}")
        for entry in entries:
            why_not = context.trouble_with(annotations, self._key(entry))
            if why_not is not None:
                return self._failed(waiting, why_not)
        left = [() if number == position else group for number, group in enumerate(groups)]
        self._erase(waiting, common_word, left)
        key = keys.hami_allocated(common_word)
        return Served(
            tuple(Grant(self._key(e), e.memory_mib, e.cores_pct) for e in entries),
            Record(waiting.label, key, annotations.get(key, "")),
            self._env(annotations, entries, details),
        )

    def _key(self, entry: Entry) -> CardKey:
        return CardKey(self._context.node, ASCEND, entry.card)

    def _named(self) -> str | None:
        """The pod that the node's lock names, if it names one."""
        text = self._context.lock(keys.LOCK_ASCEND)
        if text is None:
            return None
        lock = node_lock.parse_lock(text, keys.LOCK_ASCEND)
        return None if isinstance(lock, Problem) else lock.pod or None

    def _details(self, annotations: Mapping[str, str], common_word: str) -> dict[str, Detail] | str:
        """What the annotation says of each card besides its amounts; a text names a fault."""
        key = keys.ascend_detail(common_word)
        if key not in annotations:
            return f"build runtimeInfo lookup: annotation {key} not set"
        details = ascend.decode_detail(annotations[key], common_word)
        if isinstance(details, Problem):
            return f"build runtimeInfo lookup: {details.message}"
        return {detail.card: detail for detail in details}

    def _env(
        self,
        annotations: Mapping[str, str],
        entries: Sequence[Entry],
        details: Mapping[str, Detail],
    ) -> dict[str, str]:
        chips = [self._cards[entry.card].index for entry in entries]
        found = [details[entry.card] for entry in entries if entry.card in details]
        mode = annotations.get(keys.VNPU_MODE, "")
        if mode == keys.MODE_HAMI_CORE or (not mode and self._soft):
            first = found[0] if found else Detail("")
            return ascend_soft_env(chips, first.memory_mib, first.cores)
        return ascend_env(chips, next((detail.template for detail in found), ""))

    def _erase(self, waiting: Waiting, common_word: str, left: Sequence[Sequence[Entry]]) -> None:
        text = "".join(
            "".join(f"{e.card},{e.type},{e.memory_mib},{e.cores_pct}:" for e in group) + ";"
            for group in left
        )
        changes = {keys.hami_to_allocate(common_word): text}
        is_done = not any(left)
        if is_done:
            changes[keys.HAMI_BIND_PHASE] = keys.PHASE_SUCCESS
        self._context.annotate(waiting, changes)
        if is_done:
            self._context.unlock(keys.LOCK_ASCEND)

    def _failed(self, waiting: Waiting, why: str) -> str:
        self._context.annotate(waiting, {keys.HAMI_BIND_PHASE: keys.PHASE_FAILED})
        self._context.unlock(keys.LOCK_ASCEND)
        return why
