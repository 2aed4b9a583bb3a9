"""`board_terms` as plain loops, written to be compiled: the plugins' terms of one node."""

import numpy as np

from allotment.core.board_terms import UNCHANGED
from allotment.core.columns import CPU, EXTENDED, HOST_MEMORY, SIZE_CPU, SIZE_EXTENDED, SIZE_MEMORY
from allotment.core.kernel_layout import (
    BALANCED,
    COMPARES,
    GPU_NEED,
    GPU_ROW,
    HAS_NODEORDER,
    LEAST,
    LOAD_CPU,
    LOAD_MEMORY,
    MEAN_CONSTANT,
    MEAN_CPU,
    MEAN_DIVISOR,
    MEAN_MEMORY,
    MOST,
    SHARE_MEAN,
    SHARE_NEED,
    SHARE_ROW,
    SHARE_WEIGHT,
    WITH_CPU,
    WITH_MEMORY,
    part,
)
from allotment.core.packing import Ints
from allotment.core.points import FULL_MICRO, POINT_MICRO
from allotment.core.terms import EVEN_STEP_MICRO, POINTS

_LOST_OF_TWO, _LOST_OF_THREE = (
    np.array([k * k * number**3 * (FULL_MICRO // POINTS) ** 2 for k in range(POINTS)])
    for number in (2, 3)
)


@part
def terms_micro(
    position: int,
    host: Ints,
    sizes: Ints,
    unsaid: Ints,
    terms: Ints,
    means: Ints,
    shares: Ints,
    of_images: int,
    parts: Ints,
) -> int:
    """The sum of the plugins' terms at a position, `of_images` for its images among them; each is
    stored in its row of `parts`.
    """
    total, part = 0, 0
    if terms[HAS_NODEORDER] == 1:
        micro = of_images + _nodeorder(position, host, sizes, unsaid, terms)
        parts[part, position] = micro
        total += micro
        part += 1
    for mean in range(means.shape[0]):
        cpu = means[mean, MEAN_CPU]
        memory = means[mean, MEAN_MEMORY]
        micro = means[mean, MEAN_CONSTANT]
        if cpu != 0 or memory != 0:
            micro += cpu * _share(position, CPU, terms[WITH_CPU], host, sizes)
            micro += memory * _share(position, HOST_MEMORY, terms[WITH_MEMORY], host, sizes)
        for number in range(shares.shape[0]):
            if shares[number, SHARE_MEAN] == mean:
                row, need = shares[number, SHARE_ROW], shares[number, SHARE_NEED]
                micro += shares[number, SHARE_WEIGHT] * _share(position, row, need, host, sizes)
        micro //= means[mean, MEAN_DIVISOR]
        parts[part, position] = micro
        total += micro
        part += 1
    return total


@part
def _share(position: int, row: int, need: int, host: Ints, sizes: Ints) -> int:
    """`points.near_share_micro` of a resource by its host row, with `need` more in use."""
    column = row - CPU + SIZE_CPU if row < EXTENDED else row + SIZE_EXTENDED
    scaled = sizes[column, 1, position]
    used = (sizes[column, 0, position] - host[position, row] + need) >> sizes[column, 3, position]
    share: int = (FULL_MICRO * min(used, scaled) + sizes[column, 2, position]) // scaled
    return share


@part
def _nodeorder(position: int, host: Ints, sizes: Ints, unsaid: Ints, terms: Ints) -> int:
    micro = 0
    cpu, memory = sizes[SIZE_CPU, 0, position], sizes[SIZE_MEMORY, 0, position]
    if terms[LEAST] or terms[MOST]:
        load_cpu = cpu - host[position, CPU] + terms[LOAD_CPU] + unsaid[0, position]
        load_memory = (
            memory - host[position, HOST_MEMORY] + terms[LOAD_MEMORY] + unsaid[1, position]
        )
        load_cpu, load_memory = min(load_cpu, cpu), min(load_memory, memory)
        number = max(int(cpu > 0) + int(memory > 0), 1)
        if terms[LEAST]:
            points = (cpu - load_cpu) * POINTS // max(cpu, 1)
            points += (memory - load_memory) * POINTS // max(memory, 1)
            micro += points // number * (terms[LEAST] * POINT_MICRO)
        if terms[MOST]:
            points = load_cpu * POINTS // max(cpu, 1)
            points += load_memory * POINTS // max(memory, 1)
            micro += points // number * (terms[MOST] * POINT_MICRO)
    if terms[BALANCED]:
        with_pod = terms[WITH_CPU], terms[WITH_MEMORY], terms[GPU_NEED]
        lost = _lost(position, with_pod, host, sizes, terms)
        points = POINTS - lost
        if terms[COMPARES] == 1:
            points = (_lost(position, (0, 0, 0), host, sizes, terms) - lost) // 2 + UNCHANGED
        micro += points * (terms[BALANCED] * POINT_MICRO)
    return micro


@part
def _lost(position: int, need: tuple[int, int, int], host: Ints, sizes: Ints, terms: Ints) -> int:
    """Points that are lost by being uneven with this much more CPU, memory and GPUs in use; see
    `terms.even_points`.
    """
    has_cpu, has_memory = sizes[SIZE_CPU, 0, position] > 0, sizes[SIZE_MEMORY, 0, position] > 0
    cpu = _share(position, CPU, need[0], host, sizes) if has_cpu else 0
    memory = _share(position, HOST_MEMORY, need[1], host, sizes) if has_memory else 0
    if terms[GPU_ROW] < 0:
        between = abs(cpu - memory) if has_cpu and has_memory else 0
        return (between + EVEN_STEP_MICRO - 1) // EVEN_STEP_MICRO
    gpu = _share(position, terms[GPU_ROW], need[2], host, sizes)
    number = 1 + int(has_cpu) + int(has_memory)
    if number == 1:
        return 0
    total = cpu + memory + gpu
    spread = (number * gpu - total) ** 2
    if has_cpu:
        spread += (number * cpu - total) ** 2
    if has_memory:
        spread += (number * memory - total) ** 2
    lost = _LOST_OF_THREE if number == 3 else _LOST_OF_TWO
    return int(np.searchsorted(lost, spread))
