"""Who holds what and what is free at one sequence: what two ways of counting must agree on."""

import msgspec

from allotment.core.ledger.model import ClusterState
from allotment_proto.facts import Amounts, Holding


class Picture(msgspec.Struct, frozen=True):
    """Who holds what and what is free at one sequence. Equal pictures are equal books."""

    holders: dict[str, tuple[str, tuple[Holding, ...], int, int, Amounts]]
    """Pod uid → node, cards, milli-CPU, bytes, extended."""
    cards: dict[str, dict[str, tuple[int, int, int]]]
    """Node → "family/card" → free slots, MiB, cores."""
    hosts: dict[str, tuple[int, int, int]]
    """Node → free milli-CPU, bytes, pods."""
    extended: dict[str, dict[str, int]]
    """Node → resource → free."""


def picture_of(state: ClusterState) -> Picture:
    """What a folded state says of it."""
    there = {name: node for name, node in state.nodes.items() if node.fact is not None}
    return Picture(
        holders={
            uid: (a.node, a.holdings, a.cpu_milli, a.memory_bytes, a.extended)
            for uid, pod in state.pods.items()
            if (a := pod.allocation) is not None
        },
        cards={
            name: {
                f"{family}/{id_}": (card.free_slots, card.free_memory_mib, card.free_cores_pct)
                for family, ledger in node.ledgers.items()
                for id_, card in ledger.by_id.items()
            }
            for name, node in there.items()
        },
        hosts={
            name: (node.cpu_milli_free, node.memory_bytes_free, node.pods_free)
            for name, node in there.items()
        },
        extended={name: dict(node.extended_free) for name, node in there.items()},
    )
