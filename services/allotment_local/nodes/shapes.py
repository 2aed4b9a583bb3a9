"""Node shapes: what the small YAML of `allot up --nodes FILE` says.

- prefix: gpu-a100        # or name: for a single node
  count: 2
  kind: vgpu              # vgpu, gpushare, whole, ascend, mindcluster or cpu
  allocate_ms: 300        # how long its device plugins take to serve one container
  gpus: {model: NVIDIA A100-PCIE-40GB, count: 8, memory_mib: 40960, slots: 10, mode: hami-core}
  cpu: 64
  memory: 256Gi
  labels: {zone: a}
  taints: [{key: gpu, value: "true", effect: NoSchedule}]
- name: npu
  kind: ascend            # or mindcluster, with {chip: Ascend310P, count: 4, cores: 8}
  npus: {chip: Ascend910B3, count: 8, memory_mib: 65536, cores: 20, slots: 4, networks: 2}
"""

import msgspec

from allotment_proto.volcano import keys

VGPU, GPUSHARE, WHOLE, CPU = "vgpu", "gpushare", "whole", "cpu"
ASCEND, MINDCLUSTER = "ascend", "mindcluster"
GPU_KINDS = (VGPU, GPUSHARE, WHOLE)
NPU_KINDS = (ASCEND, MINDCLUSTER)
KINDS = (*GPU_KINDS, *NPU_KINDS, CPU)
EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
DEFAULT_SLOTS = 10
MODES = (keys.MODE_HAMI_CORE, keys.MODE_MIG, keys.MODE_MPS)
DEFAULT_MODE = MODES[0]
WHOLE_RESOURCE = "nvidia.com/gpu"
DEFAULT_CPU = "64"
DEFAULT_MEMORY = "256Gi"


class Cards(msgspec.Struct, frozen=True):
    """The cards of one node, all alike. `model` is as NVML prints it."""

    model: str
    count: int
    memory_mib: int
    slots: int = DEFAULT_SLOTS
    mode: str = DEFAULT_MODE
    resource: str = WHOLE_RESOURCE


class Npus(msgspec.Struct, frozen=True):
    """The Ascend chips of one node, all alike. `chip` is Ascend's common word, like Ascend310P.

    `networks` is how many groups of wired chips there are, 0 when nothing is said of it; `soft`:
    the node takes soft slices. Of both, and of memory and slots, MindCluster knows nothing.
    """

    chip: str
    count: int
    cores: int
    memory_mib: int = 0
    slots: int = 1
    networks: int = 0
    soft: bool = False


class NodeShape(msgspec.Struct, frozen=True):
    """One node to make."""

    name: str
    kind: str
    cards: Cards | None = None
    cpu: str = DEFAULT_CPU
    memory: str = DEFAULT_MEMORY
    labels: tuple[tuple[str, str], ...] = ()
    taints: tuple[tuple[str, str, str], ...] = ()
    """(key, value, effect)"""
    npus: Npus | None = None
    allocate_ms: int | None = None
    """How long its device plugins take for an Allocate; None: as in the rest of the cluster."""
