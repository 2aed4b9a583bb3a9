"""The vGPU device plugin: shares of cards, cards through MPS, and MIG instances.

A plugin is given only a number of devices. Which pod that is for it guesses from annotations, and
can guess wrong when two pods wait; the caller compares.

Source: `volcano-vgpu-device-plugin` `plugin/vgpu/plugin.go`, `util.go`, `mig.go` (deviceshare 6.5).
"""

from collections.abc import Sequence
from typing import NamedTuple

from allotment_local.nodes import plugin_env
from allotment_local.nodes.annotations import ALLOCATE_FAILS, FAULT
from allotment_local.nodes.books import RECUT, CardKey, Grant
from allotment_local.nodes.inventory import VGPU
from allotment_local.nodes.pending import Waiting
from allotment_local.nodes.plugin_env import Share
from allotment_local.nodes.serving import ASKED_FOR, PluginContext, Record, Served, derived_id
from allotment_local.nodes.showing import said_of
from allotment_proto.facts import CardFact
from allotment_proto.volcano import device_config, keys, mig, vgpu

NO_VALID_POD = "cannot get valid pod"


class _Piece(NamedTuple):
    """One entry of an assignment, as it is going to be handed out."""

    grant: Grant
    share: Share


class VgpuPlugin:
    """The plugin of one node's NVIDIA cards. `cards` are the cards as they are registered."""

    def __init__(self, context: PluginContext, cards: Sequence[CardFact]) -> None:
        self._context = context
        self._cards = {card.id: card for card in cards}
        self.geometries: dict[str, str] = {}
        """The geometry by which a MIG card is partitioned, by card; no card is at first."""

    def register(self, cards: Sequence[CardFact]) -> None:
        """The cards as they are from now on; what was partitioned stays so."""
        self._cards = {card.id: card for card in cards}

    def allocate(self, amount: int) -> Served | str:
        """Serve one container; a text says why not."""
        context = self._context
        waiting = context.pending.pick_vgpu(context.node, amount)
        if waiting is None:
            context.unlock(keys.LOCK_VGPU)
            return NO_VALID_POD
        annotations = context.annotations(waiting)
        if annotations.get(FAULT) == ALLOCATE_FAILS:
            return self._failed(waiting, ASKED_FOR)
        text = annotations[keys.DEVICES_TO_ALLOCATE]
        groups = text.split(";")
        position = next((i for i, group in enumerate(groups) if _is_served(group)), None)
        if position is None:
            return self._failed(waiting, "device request not found")
        (entries,), unreadable = vgpu.decode_assignment(groups[position])
        if len(entries) + len(unreadable) != amount:
            return self._failed(waiting, "device number not matched")
        if unreadable:
            return f"cannot read the devices: {unreadable[0].message}"
        pieces: list[_Piece] = []
        made: dict[str, str] = {}
        for entry in entries:
            key = CardKey(context.node, VGPU, entry.card)
            if entry.card in context.failing:
                return self._failed(waiting, str(context.trouble_with(annotations, key)))
            piece = context.trouble_with(annotations, key) or self._piece(key, entry, made, waiting)
            if isinstance(piece, str):
                return piece
            pieces.append(piece)
        self.geometries.update(made)
        groups[position] = ""
        erased = ";".join(groups)
        changes = {keys.DEVICES_TO_ALLOCATE: erased}
        is_done = "GPU" not in erased
        if is_done:  # the plugin patches twice, the second time within milliseconds
            changes |= _finished(keys.PHASE_SUCCESS)
        context.annotate(waiting, changes)
        if is_done:
            context.unlock(keys.LOCK_VGPU)
        record = Record(waiting.label, keys.VGPU_IDS, annotations.get(keys.VGPU_IDS, ""))
        return Served(tuple(piece.grant for piece in pieces), record, self._env(pieces))

    def _piece(
        self, key: CardKey, entry: vgpu.Entry, made: dict[str, str], waiting: Waiting
    ) -> _Piece | str:
        """What an entry hands out; a text says why it cannot be. `made` collects new geometries."""
        if not entry.instance:
            grant = Grant(key, entry.memory_mib, entry.cores_pct)
            return _Piece(grant, Share(entry.card, entry.memory_mib, entry.cores_pct))
        config, card = self._context.config(), self._cards.get(entry.card)
        if card is None:
            return f"there is no card {entry.card!r} on node {self._context.node}"
        table = device_config.geometries_for(config, card.model)
        profile = mig.profile_of(table, entry.instance)
        group = entry.instance.rpartition("-")[0]
        if profile is None:
            return (
                f"{entry.instance} of card {entry.card} is in no geometry that the device "
                f"configuration has for {card.model!r}"
            )
        present = made.get(entry.card, self.geometries.get(entry.card, ""))
        account = self._context.books.account(key)
        if present != group and account is not None and account.held:
            held = ", ".join(sorted(account.instances)) or "all of it"
            why = f"cannot be cut as {group}: cut as {present or 'nothing'}, in use are {held}"
            self._recut_in_use(key, waiting, why)
            return f"nvidia-mig-parted: card {entry.card} {why}"
        made[entry.card] = group
        grant = Grant(key, profile.memory_mib, entry.cores_pct, instance=entry.instance)
        share = Share(mig_uuid(entry.card, entry.instance), profile.memory_mib, entry.cores_pct)
        return _Piece(grant, share)

    def _recut_in_use(self, key: CardKey, waiting: Waiting, why: str) -> None:
        self._context.books.incident(RECUT, key.node, key.card, waiting.label, why)

    def _env(self, pieces: Sequence[_Piece]) -> dict[str, str]:
        context, config = self._context, self._context.config()
        shares = [piece.share for piece in pieces]
        card = self._cards.get(pieces[0].grant.card.card)
        mode = keys.MODE_HAMI_CORE if card is None else card.mode
        if any(piece.grant.instance for piece in pieces):
            mode = keys.MODE_MIG
        if mode == keys.MODE_MPS:
            return plugin_env.mps_env(shares, config.nvidia.count_name)
        said = said_of(config, context.node)
        return plugin_env.container_env(
            mode,
            shares,
            context.draw_id(),
            memory_factor=config.nvidia.memory_factor,
            cores_scaling_milli=said.cores_scaling_milli or config.nvidia.cores_scaling_milli,
            cores_unlimited=config.nvidia.disable_core_limit,
        )

    def _failed(self, waiting: Waiting, why: str) -> str:
        self._context.annotate(waiting, _finished(keys.PHASE_FAILED))
        self._context.unlock(keys.LOCK_VGPU)
        return why


def mig_uuid(card: str, instance: str) -> str:
    """The id of a MIG device, as NVML spells them; the same in every run."""
    return f"MIG-{derived_id(f'{card}[{instance}]')}"


def _finished(phase: str) -> dict[str, str]:
    """What marks a pod as served, or as failed."""
    return {keys.BIND_PHASE: phase, keys.VGPU_TIME: keys.VGPU_TIME_DONE}


def _is_served(group: str) -> bool:
    """The group holds a device of this plugin; one already handed out is empty."""
    return any(
        len(fields) > 1 and fields[1] == vgpu.ENTRY_TYPE
        for fields in (piece.split(",") for piece in group.split(":"))
    )
