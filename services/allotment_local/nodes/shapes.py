"""Node shapes: what the small YAML of `allot up --nodes FILE` says.

- prefix: gpu-a100        # or name: for a single node
  count: 2
  kind: vgpu              # vgpu, gpushare, whole or cpu
  gpus: {model: NVIDIA A100-PCIE-40GB, count: 8, memory_mib: 40960, slots: 10}
  cpu: 64
  memory: 256Gi
  labels: {zone: a}
  taints: [{key: gpu, value: "true", effect: NoSchedule}]
"""

import msgspec

VGPU, GPUSHARE, WHOLE, CPU = "vgpu", "gpushare", "whole", "cpu"
KINDS = (VGPU, GPUSHARE, WHOLE, CPU)
EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
DEFAULT_SLOTS = 10
MODES = ("hami-core", "mig")
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
