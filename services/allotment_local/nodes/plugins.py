"""All device plugins of one node, and which of them serves a resource.

Amounts of a kind of which nothing is said here (memory and cores of vGPU) are answered with an
empty grant, as the plugin does.
"""

from collections.abc import Callable, Sequence
from functools import partial

from allotment_local.apiserver.store import Store
from allotment_local.nodes.annotations import NodeFaults
from allotment_local.nodes.books import CORES_WHOLE_PCT, Books, CardKey, Grant
from allotment_local.nodes.inventory import (
    ASCEND,
    GPUSHARE,
    MINDCLUSTER,
    VGPU,
    Hardware,
    ascend_resource,
)
from allotment_local.nodes.pending import Pending
from allotment_local.nodes.plugin_ascend import AscendPlugin
from allotment_local.nodes.plugin_gpushare import GpusharePlugin
from allotment_local.nodes.plugin_mindcluster import MindclusterPlugin
from allotment_local.nodes.plugin_vgpu import VgpuPlugin
from allotment_local.nodes.serving import ASKED_FOR, PluginContext, Served
from allotment_local.nodes.showing import offered_by, registered
from allotment_proto.device_config import DeviceConfig
from allotment_proto.volcano import device_config, keys


class Plugins:
    """The plugins of a node, as its hardware and the device configuration make them."""

    def __init__(
        self,
        node: str,
        hardware: Hardware,
        store: Store,
        pending: Pending,
        books: Books,
        config: Callable[[], DeviceConfig] = device_config.default,
    ) -> None:
        self._hardware = hardware
        self._whole = dict(hardware.whole)
        self._context = context = PluginContext(node, store, pending, books, config)
        self._vgpu = VgpuPlugin(context, hardware.vgpu)
        self._gpushare = GpusharePlugin(context, hardware.gpushare)
        self._ascend = AscendPlugin(context, hardware.ascend, soft=hardware.soft)
        self._mindcluster = MindclusterPlugin(context, hardware.chips)
        self._add_cards()
        self.configured()

    @property
    def geometries(self) -> dict[str, str]:
        """The geometry of each MIG card that is partitioned."""
        return self._vgpu.geometries

    def configured(self) -> None:
        """Take the device configuration as it is now."""
        context, config = self._context, self._context.config()
        cards = registered(self._hardware, config, context.node)
        self._vgpu.register(cards)
        for card in cards:
            slots, memory, cores = offered_by(card, config, context.node)
            key = CardKey(context.node, VGPU, card.id)
            context.books.add_card(key, card.index, slots, memory, cores)

    def break_down(self, faults: NodeFaults) -> None:
        """What is broken from now on, and nothing else."""
        self._context.unhealthy = faults.unhealthy
        self._context.failing = faults.failing
        self._context.gone = faults.gone
        if (
            shared := self._hardware.gpushare
        ):  # reported by their number only: the last ones are gone
            left = len(shared) - len(faults.gone)
            self._context.gone = frozenset(card.id for card in shared[left:])

    def allocate(
        self,
        resource: str,
        amount: int,
        *,
        fails: bool = False,
        reusable: Sequence[CardKey] = (),
    ) -> Served | str:
        """Serve one container's request of one resource; a text says why not.

        `reusable` are cards that init containers of the pod had: of those that the kubelet chooses
        itself they come first.

        `fails`: the pod being admitted asks for a failure. Plugins that choose a pod themselves
        look at the pod that they chose instead.
        """
        serve = self._server(resource, reusable)
        if serve is None:
            return Served()
        return ASKED_FOR if fails and resource in self._whole else serve(amount)

    def hands_out(self, resource: str) -> bool:
        """Whether an Allocate of this resource hands something out, and so takes its time."""
        return self._server(resource) is not None

    def _server(
        self, resource: str, reusable: Sequence[CardKey] = ()
    ) -> Callable[[int], Served | str] | None:
        config, hardware = self._context.config(), self._hardware
        if hardware.vgpu and resource == config.nvidia.count_name:
            return self._vgpu.allocate
        if resource in (keys.GPU_MEMORY, keys.GPU_NUMBER):
            return partial(self._gpushare.allocate, resource)
        if resource == keys.NPU_CORE and hardware.chips:
            return self._mindcluster.allocate
        for word in {chip.model for chip in hardware.ascend}:
            if resource == ascend_resource(config, word):
                return partial(self._ascend.allocate, word)
        if resource not in self._whole:
            return None
        return partial(self._whole_cards, resource, [k for k in reusable if k.family == resource])

    def _whole_cards(self, resource: str, reusable: Sequence[CardKey], amount: int) -> Served | str:
        """The kubelet itself chooses among those that are free."""
        context = self._context
        broken = context.unhealthy | context.gone
        free = list(reusable)
        for index in range(self._whole[resource]):
            key = CardKey(context.node, resource, str(index))
            account = context.books.account(key)
            if account is not None and not account.held and key.card not in broken:
                free.append(key)
        if len(free) < amount:
            return (
                f"requested number of devices unavailable for {resource}. "
                f"Requested: {amount}, Available: {len(free)}"
            )
        failing = [key.card for key in free[:amount] if key.card in context.failing]
        if failing:
            return f"card {failing[0]} cannot be handed out: {ASKED_FOR}"
        return Served(tuple(Grant(key, 0, CORES_WHOLE_PCT) for key in free[:amount]))

    def _add_cards(self) -> None:
        hardware, books, node = self._hardware, self._context.books, self._context.node
        for family, cards in (
            (GPUSHARE, hardware.gpushare),
            (ASCEND, hardware.ascend),
            (MINDCLUSTER, hardware.chips),
        ):
            for card in cards:
                key = CardKey(node, family, card.id)
                books.add_card(key, card.index, card.slots, card.memory_mib, card.cores_pct)
        for name, count in hardware.whole:
            for index in range(count):
                books.add_card(CardKey(node, name, str(index)), index, slots=1, memory_mib=0)
