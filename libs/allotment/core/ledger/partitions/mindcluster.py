"""Ascend chips through MindCluster: whole, or partitioned by named templates.

A template takes AI cores and AI CPUs of a chip, and says of the media engine (DVPP) that it takes
it (``yes``), shares it (``null``) or does without (``no``). The 310P has four groups in which its
pieces live: in three pieces it gives no more pieces of four cores, in four only pieces of one.
Which pieces share a group is Huawei's to choose, so each counts as a group of its own.

What is left follows from the pieces that are held, whatever order they came in; each takes what its
own template needs. Source: volcano `ascend310p/vnpu` (deviceshare 4.10, 7.4), with quirk Q24 done
right.

State: () for an unpartitioned chip; (free cores, free CPUs, engine, pieces as far as they are
counted); `CLOSED` for a chip that gives nothing.
"""

from collections.abc import Iterable, Sequence

from allotment.core.ledger.partitions.base import UNPARTITIONED, WHOLE, Piece, State, Table
from allotment_proto.facts import CardFact, DeviceRequest
from allotment_proto.volcano.mindcluster import TEMPLATES, Template

ENGINE_FREE, _ENGINE_SHARED, ENGINE_TAKEN = range(3)
CLOSED: State = (0, 0, ENGINE_TAKEN, 0)
_GROUPED = "Ascend310P"
"""The chip whose pieces live in groups."""
_LARGEST_CORES = {3: 3, 4: 1}
"""Cut into so many pieces, a grouped chip gives pieces of so many cores at most."""
_PIECES_MOST = max(_LARGEST_CORES)
_BEST = 1 << 10
"""More cores than any chip has: a piece as it was asked for comes before a downgraded one."""

_NAMES = tuple(TEMPLATES)


class _Mindcluster:
    """The partitioner of MindCluster chips; see `allotment.core.ledger.partitions.Partitioner`."""

    def state(self, card: CardFact, table: Table, held: Sequence[str]) -> State:
        state = UNPARTITIONED
        for name in held:
            template = TEMPLATES.get(name)
            state = CLOSED if template is None else _after(card, state, template)
        return state

    def states(self, card: CardFact, table: Table) -> Iterable[State]:
        """Also those that only others bring about, who partition what should not have been."""
        found: dict[State, None] = {UNPARTITIONED: None, CLOSED: None}
        waiting = [UNPARTITIONED]
        while waiting:
            state = waiting.pop()
            for template in TEMPLATES.values():
                after = _after(card, state, template)
                if after not in found:
                    found[after] = None
                    waiting.append(after)
        return found

    def piece(
        self, card: CardFact, table: Table, state: State, wanted: DeviceRequest, order: str
    ) -> Piece | None:
        """The first of the wanted templates that the chip gives; of equal chips the fullest."""
        if not wanted.templates:
            is_whole = state == UNPARTITIONED and wanted.cores_pct == card.cores_pct
            return Piece((), 0, wanted.cores_pct, CLOSED) if is_whole else None
        for number, name in enumerate(wanted.templates):
            template = TEMPLATES.get(name)
            if template is not None and _gives(card, state, template):
                used_cores = card.cores_pct - _free(card, state)[0]
                return Piece(
                    (_NAMES.index(name),),
                    0,
                    template.cores,
                    _after(card, state, template),
                    rank=used_cores if number else _BEST + used_cores,
                    is_second_best=number > 0,
                )
        return None

    def most(self, card: CardFact, table: Table, state: State, wanted: DeviceRequest) -> int:
        if not wanted.templates:
            return int(state == UNPARTITIONED and wanted.cores_pct == card.cores_pct)
        cores, cpu, *_ = _free(card, state)
        templates = [TEMPLATES[name] for name in wanted.templates if name in TEMPLATES]
        return max((min(cores // t.cores, cpu // t.cpu) for t in templates), default=0)

    def name(self, table: Table, piece: Piece, held: Sequence[str]) -> str:
        return _NAMES[piece.kind[0]] if piece.kind else WHOLE

    def charged_mib(self, table: Table, instance: str, wanted_mib: int) -> int:
        """Chips are not shared by memory."""
        return wanted_mib

    def admits(self, card: CardFact, table: Table, held: Sequence[str], new: Sequence[str]) -> bool:
        state = self.state(card, table, held)
        for name in new:
            template = TEMPLATES.get(name)
            if template is None:
                if name != WHOLE or state != UNPARTITIONED:
                    return False
                state = CLOSED
            elif _gives(card, state, template):
                state = _after(card, state, template)
            else:
                return False
        return True


MINDCLUSTER = _Mindcluster()


def _free(card: CardFact, state: State) -> State:
    """A state in full: cores, CPUs, engine, pieces."""
    return state or (card.cores_pct, card.slots, ENGINE_FREE, 0)


def _gives(card: CardFact, state: State, template: Template) -> bool:
    cores, cpu, engine, pieces = _free(card, state)
    if cores < template.cores or cpu < template.cpu:
        return False
    if template.cores > _LARGEST_CORES.get(pieces, cores):
        return False
    match template.dvpp:
        case "yes":
            return engine == ENGINE_FREE
        case "null":
            return engine != ENGINE_TAKEN
        case _:
            return True


def _after(card: CardFact, state: State, template: Template) -> State:
    """What is left once a piece is handed out, also where it should not have been."""
    cores, cpu, engine, pieces = _free(card, state)
    cores, cpu = cores - template.cores, cpu - template.cpu
    if state == CLOSED or cores < 1 or cpu < 1:
        return CLOSED
    if template.dvpp == "yes":
        engine = ENGINE_TAKEN
    elif template.dvpp == "null":
        engine = max(engine, _ENGINE_SHARED)
    if card.model == _GROUPED:
        pieces = min(pieces + 1, _PIECES_MOST)
    return (cores, cpu, engine, pieces)
