"""The older device plugin: GPU memory and GPU number. Source: `volcano-sh/devices`
`pkg/plugin/nvidia/server.go` (deviceshare 6.7).
"""

from collections.abc import Sequence

from allotment_local.nodes.amounts import amounts, limits
from allotment_local.nodes.books import CORES_WHOLE_PCT, CardKey, Grant
from allotment_local.nodes.inventory import GPUSHARE
from allotment_local.nodes.plugin_env import gpushare_env
from allotment_local.nodes.serving import PluginContext, Record, Served
from allotment_proto.facts import CardFact
from allotment_proto.volcano import gpushare, keys


class GpusharePlugin:
    def __init__(self, context: PluginContext, cards: Sequence[CardFact]) -> None:
        self._context = context
        self._memory_mib = {card.id: card.memory_mib for card in cards}

    def allocate(self, resource: str, amount: int) -> Served | str:
        """Serve one container's request of one resource; a text says why not."""
        context = self._context
        waiting = context.pending.pick_share(context.node, resource, amount)
        if waiting is None:
            return "failed to find candidate pod"
        pod = context.pod(waiting)
        annotations = pod["metadata"].get("annotations") or {}
        place = f"annotation {keys.GPU_INDEX}"
        indexes, problems = gpushare.decode_indexes(annotations.get(keys.GPU_INDEX, ""), place)
        cards = [CardKey(context.node, GPUSHARE, str(index)) for index in indexes]
        for card in cards:
            if card.card in self._memory_mib and (why := context.trouble_with(annotations, card)):
                return why
        unknown = [card for card in cards if card.card not in self._memory_mib]
        if problems or unknown or not indexes:
            text = annotations.get(keys.GPU_INDEX)
            return f"{place} of pod {waiting.name} is {text!r}, which names no card of this node"
        whole = resource == keys.GPU_NUMBER
        # Each container is one Allocate, but the pod is assigned at the first: all of it is booked.
        asked_mib = sum(
            amounts({resource: limits(container).get(resource, 0)})[resource]
            for container in pod["spec"]["containers"]
        )
        context.annotate(waiting, {keys.GPU_ASSIGNED: "true"})
        context.unlock(keys.LOCK_GPUSHARE)
        return Served(
            tuple(
                Grant(
                    card,
                    self._memory_mib[card.card] if whole else asked_mib,
                    CORES_WHOLE_PCT if whole else 0,
                )
                for card in cards
            ),
            Record(waiting.label, keys.GPU_INDEX, annotations[keys.GPU_INDEX]),
            gpushare_env(indexes, amount, next(iter(self._memory_mib.values()))),
        )
