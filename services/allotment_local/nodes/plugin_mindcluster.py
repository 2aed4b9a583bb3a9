"""Huawei's device plugin of MindCluster: whole chips, or pieces that a template cuts.

It writes what it really handed out into ``huawei.com/AscendReal``. (deviceshare 6.9)
"""

from collections.abc import Sequence

from allotment_local.nodes.books import CardKey, Grant
from allotment_local.nodes.inventory import MINDCLUSTER
from allotment_local.nodes.plugin_env import ascend_env
from allotment_local.nodes.serving import PluginContext, Record, Served
from allotment_proto.facts import CardFact, Problem
from allotment_proto.volcano import keys, mindcluster
from allotment_proto.volcano.mindcluster import Template

FIRST_VNPU = 100
"""From here on the driver numbers the pieces of a chip."""


class MindclusterPlugin:
    def __init__(self, context: PluginContext, cards: Sequence[CardFact]) -> None:
        self._context = context
        self._cards = {card.id: card for card in cards}

    def allocate(self, amount: int) -> Served | str:
        """Serve the container that asks for `amount` AI cores; a text says why not."""
        context = self._context
        waiting = context.pending.pick_share(context.node, keys.NPU_CORE, amount)
        if waiting is None:
            return "no pod waits for this many AI cores"
        annotations = context.annotations(waiting)
        text = annotations[keys.NPU_CORE]
        found = mindcluster.decode_npu_core(text)
        if isinstance(found, Problem):
            return f"{found.place} {found.message}"
        keys_of_cards = [CardKey(context.node, MINDCLUSTER, chip) for chip in found.chips]
        for key in keys_of_cards:
            why_not = context.trouble_with(annotations, key)
            if why_not is not None:
                return why_not
        template = mindcluster.TEMPLATES.get(found.template)
        grants = tuple(self._grant(key, template) for key in keys_of_cards)
        asked = sum(grant.cores_pct for grant in grants)
        if asked != amount:
            return f"annotation {keys.NPU_CORE} is {text!r}, so {asked} AI cores, not {amount}"
        real = ",".join(self._real(key, template) for key in keys_of_cards)
        context.annotate(waiting, {keys.ASCEND_REAL: real})
        chips = [int(chip) for chip in found.chips]
        return Served(
            grants, Record(waiting.label, keys.NPU_CORE, text), ascend_env(chips, found.template)
        )

    def _grant(self, key: CardKey, template: Template | None) -> Grant:
        """AI cores, and AI CPUs in place of a holder."""
        card = self._cards[key.card]
        if template is None:
            return Grant(key, 0, card.cores_pct, slots=card.slots)
        return Grant(key, 0, template.cores, slots=template.cpu)

    def _real(self, key: CardKey, template: Template | None) -> str:
        """``Ascend310P-0`` for a chip, ``Ascend310P-4c.3cpu-100-0`` for a piece of it."""
        kind = self._cards[key.card].model
        if template is None:
            return f"{kind}-{key.card}"
        account = self._context.books.account(key)
        number = FIRST_VNPU + (0 if account is None else len(account.held))
        return f"{kind}-{_size(template)}-{number}-{key.card}"


def _size(template: Template) -> str:
    """A template as device names spell it: ``2c``, ``4c.3cpu``, ``4c.3cpu.ndvpp``."""
    name = template.name.removeprefix("vir0")
    cores, _, rest = name.partition("_")
    words = filter(None, rest.split("_"))
    return ".".join((f"{cores}c", *(f"{w}pu" if w.endswith("c") else w for w in words)))
