"""How much of what is idle on all nodes typical pods cannot use: `typical.cluster_fragmentation` on
columns, all nodes at once.
"""

import numpy as np

from allotment.core.placement.board import packing
from allotment.core.placement.board.columns import Columns
from allotment.core.placement.board.packing import Ints
from allotment.core.placement.board.shapes import card_sizes, compile_shape
from allotment.core.placement.policies.typical import (
    CARD_MILLI,
    HOST_MOST,
    PPM,
    Fragmentation,
    Mix,
    room,
)
from allotment.core.placement.rules.score_term import CPU


def fragmentation_on(columns: Columns, mix: Mix) -> Fragmentation:
    """Of the nodes that columns have, for the pods of a mix."""
    policy, there = columns.state.policy, columns.present.nonzero()[0]
    packed, keys = columns.packed[there], columns.keys[there]
    kind, cpu_milli = keys & columns.kind_mask, np.clip(columns.host[there, CPU], 0, HOST_MOST)
    free_mib = np.maximum(packing.memory_mib(packed), 0)
    idle: Ints = CARD_MILLI * free_mib // card_sizes(columns, policy)[kind]
    idle_nano = PPM * int(idle.sum())
    stranded_nano = idle_nano
    for shape in mix:
        ask = shape.ask
        asks = () if ask is None else compile_shape(columns, shape.request, policy).asks
        if ask is None or not asks:
            continue
        good = packing.covers(packed, asks[0].need_by_amount[kind])
        is_enough = (good.sum(axis=1) >= ask.count) & (cpu_milli >= room(shape.request.cpu_milli))
        usable = int((idle * good).sum(axis=1)[is_enough].sum())
        stranded_nano -= shape.weight_ppm * usable
    return Fragmentation(stranded_nano, idle_nano)
