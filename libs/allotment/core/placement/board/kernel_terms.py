"""`board_terms` as plain loops, written to be compiled: the plugins' terms of one node."""

import numpy as np

from allotment.core.placement.board.arrays import (
    CPU,
    EXTENDED,
    HOST_MEMORY,
    SIZE_CPU,
    SIZE_EXTENDED,
    SIZE_MEMORY,
)
from allotment.core.placement.board.kernel_layout import (
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
from allotment.core.placement.board.packing import Ints
from allotment.core.placement.board.terms import UNCHANGED
from allotment.core.placement.rules.points import FULL_MICRO, POINT_MICRO
from allotment.core.placement.rules.terms import EVEN_STEP_MICRO, POINTS

_LOST_OF_TWO, _LOST_OF_THREE = (
    np.array([k * k * number**3 * (FULL_MICRO // POINTS) ** 2 for k in range(POINTS)])
    for number in (2, 3)
)


@part
def add_terms(
    at: Ints,
    host: Ints,
    sizes: Ints,
    unsaid: Ints,
    images: Ints,
    image_micro: int,
    terms: Ints,
    means: Ints,
    shares: Ints,
    micro: Ints,
    parts: Ints,
) -> None:
    """Add the plugins' terms to `micro` (M,) where that is at least 0, and store each of them in
    its row of `parts`, the sum of all in the last. A point of the images is worth `image_micro`.
    """
    row = 0
    if terms[HAS_NODEORDER] == 1:
        _nodeorder(at, host, sizes, unsaid, images, image_micro, terms, micro, parts)
        row = 1
    for mean in range(means.shape[0]):
        _mean(at, host, sizes, terms, means, shares, mean, micro, parts, row)
        row += 1
    for number in range(len(at)):
        parts[row, at[number]] = micro[number]


@part
def _mean(
    at: Ints,
    host: Ints,
    sizes: Ints,
    terms: Ints,
    means: Ints,
    shares: Ints,
    mean: int,
    micro: Ints,
    parts: Ints,
    row: int,
) -> None:
    """One plugin's weighted mean of shares."""
    cpu_weight, memory_weight = means[mean, MEAN_CPU], means[mean, MEAN_MEMORY]
    for number in range(len(at)):
        position = at[number]
        if micro[number] < 0:
            continue
        total = means[mean, MEAN_CONSTANT]
        if cpu_weight != 0 or memory_weight != 0:
            for column in range(SIZE_MEMORY + 1):
                weight = cpu_weight if column == SIZE_CPU else memory_weight
                need = terms[WITH_CPU] if column == SIZE_CPU else terms[WITH_MEMORY]
                total += weight * share_micro(
                    sizes[column, 0, position] - host[position, CPU + column] + need,
                    sizes[column, 1, position],
                    sizes[column, 2, position],
                    sizes[column, 3, position],
                )
        for share in range(shares.shape[0]):
            if shares[share, SHARE_MEAN] == mean:
                resource = shares[share, SHARE_ROW]
                column = resource + SIZE_EXTENDED
                if resource < EXTENDED:
                    column = resource - CPU
                total += shares[share, SHARE_WEIGHT] * share_micro(
                    sizes[column, 0, position]
                    - host[position, resource]
                    + shares[share, SHARE_NEED],
                    sizes[column, 1, position],
                    sizes[column, 2, position],
                    sizes[column, 3, position],
                )
        total //= means[mean, MEAN_DIVISOR]
        parts[row, position] = total
        micro[number] += total


@part
def share_micro(used: int, scaled: int, half: int, bits: int) -> int:
    """`points.near_share_micro`, with what `Columns.sizes` knows of the resource."""
    return (FULL_MICRO * min(used >> bits, scaled) + half) // scaled


@part
def _nodeorder(
    at: Ints,
    host: Ints,
    sizes: Ints,
    unsaid: Ints,
    images: Ints,
    image_micro: int,
    terms: Ints,
    micro: Ints,
    parts: Ints,
) -> None:
    has_load, gpu_row = terms[LEAST] != 0 or terms[MOST] != 0, terms[GPU_ROW]
    lost = np.zeros(2, np.int64)
    for number in range(len(at)):
        position = at[number]
        if micro[number] < 0:
            continue
        total = images[position] * image_micro if len(images) > 0 else 0
        cpu, memory = sizes[SIZE_CPU, 0, position], sizes[SIZE_MEMORY, 0, position]
        used_cpu = cpu - host[position, CPU]
        used_memory = memory - host[position, HOST_MEMORY]
        if has_load:
            load_cpu = min(used_cpu + terms[LOAD_CPU] + unsaid[0, position], cpu)
            load_memory = min(used_memory + terms[LOAD_MEMORY] + unsaid[1, position], memory)
            known = max(int(cpu > 0) + int(memory > 0), 1)
            points = (cpu - load_cpu) * POINTS // max(cpu, 1)
            points += (memory - load_memory) * POINTS // max(memory, 1)
            total += points // known * (terms[LEAST] * POINT_MICRO)
            points = load_cpu * POINTS // max(cpu, 1)
            points += load_memory * POINTS // max(memory, 1)
            total += points // known * (terms[MOST] * POINT_MICRO)
        if terms[BALANCED] != 0:
            for case in range(2 if terms[COMPARES] == 1 else 1):  # with the pod; without it
                counts = 1 - case
                cpu_share = share_micro(
                    used_cpu + counts * terms[WITH_CPU],
                    sizes[SIZE_CPU, 1, position],
                    sizes[SIZE_CPU, 2, position],
                    sizes[SIZE_CPU, 3, position],
                )
                memory_share = share_micro(
                    used_memory + counts * terms[WITH_MEMORY],
                    sizes[SIZE_MEMORY, 1, position],
                    sizes[SIZE_MEMORY, 2, position],
                    sizes[SIZE_MEMORY, 3, position],
                )
                if gpu_row < 0:
                    lost[case] = lost_of_two(cpu, memory, cpu_share, memory_share)
                else:
                    column = gpu_row + SIZE_EXTENDED
                    gpu_share = share_micro(
                        sizes[column, 0, position]
                        - host[position, gpu_row]
                        + counts * terms[GPU_NEED],
                        sizes[column, 1, position],
                        sizes[column, 2, position],
                        sizes[column, 3, position],
                    )
                    lost[case] = lost_of_three(cpu, memory, cpu_share, memory_share, gpu_share)
            points = POINTS - lost[0]
            if terms[COMPARES] == 1:
                points = (lost[1] - lost[0]) // 2 + UNCHANGED
            total += points * (terms[BALANCED] * POINT_MICRO)
        parts[0, position] = total
        micro[number] += total


@part
def lost_of_two(cpu: int, memory: int, cpu_share: int, memory_share: int) -> int:
    """Points that are lost by being uneven; see `terms.even_points`."""
    if cpu <= 0 or memory <= 0:
        return 0
    return (abs(cpu_share - memory_share) + EVEN_STEP_MICRO - 1) // EVEN_STEP_MICRO


@part
def lost_of_three(cpu: int, memory: int, cpu_share: int, memory_share: int, gpu_share: int) -> int:
    """The same with GPUs, which are always there."""
    number = 1 + int(cpu > 0) + int(memory > 0)
    if number == 1:
        return 0
    total = gpu_share
    if cpu > 0:
        total += cpu_share
    if memory > 0:
        total += memory_share
    spread = (number * gpu_share - total) ** 2
    if cpu > 0:
        spread += (number * cpu_share - total) ** 2
    if memory > 0:
        spread += (number * memory_share - total) ** 2
    lost = _LOST_OF_THREE if number == 3 else _LOST_OF_TWO
    return int(np.searchsorted(lost, spread))
