"""The device configuration: what operators say about cards, as the log carries it.

Parsed from Volcano's ConfigMaps `volcano-vgpu-device-config` (cluster) and
`volcano-vgpu-node-config` (per node); see `allotment_proto.volcano.device_config`. Scalings are
thousandths, so that nothing is a fraction.
"""

import msgspec

from allotment_proto.facts import Amount, Geometry
from allotment_proto.volcano import keys


class MigModel(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The geometries of some card models. `models` are parts of product names."""

    models: tuple[str, ...]
    geometries: tuple[Geometry, ...]
    """Memory in MiB, as configured."""


class Nvidia(msgspec.Struct, frozen=True, gc=False):
    """Section `nvidia`. An empty resource name means: no pod can request that."""

    count_name: str = keys.VGPU_NUMBER
    memory_name: str = keys.VGPU_MEMORY
    memory_percentage_name: str = keys.VGPU_MEMORY_PERCENTAGE
    cores_name: str = keys.VGPU_CORES
    memory_factor: Amount = 1
    """How many MiB one unit of registered and requested memory is."""
    default_memory: Amount = 0
    """What a request without an amount gets, in units; 0: the whole card's."""
    default_cores_pct: Amount = 0
    default_count: Amount = 1
    split_count: Amount = 0
    """How many pods may share a card; 0: as the node registers."""
    memory_scaling_milli: Amount = 1000
    cores_scaling_milli: Amount = 1000
    disable_core_limit: bool = False
    mig: tuple[MigModel, ...] = ()


class AscendTemplate(msgspec.Struct, frozen=True, array_like=True, gc=False):
    name: str
    memory_mib: Amount
    ai_core: Amount
    ai_cpu: Amount


class AscendChip(msgspec.Struct, frozen=True, gc=False):
    """One entry of section `vnpus`."""

    common_word: str
    chip_name: str
    resource_name: str
    resource_memory_name: str
    memory_allocatable_mib: Amount
    memory_capacity_mib: Amount
    ai_core: Amount
    ai_cpu: Amount
    templates: tuple[AscendTemplate, ...] = ()
    """By memory, the smallest in front."""

    @property
    def resource_core_name(self) -> str:
        return f"{self.resource_name}-core"


class NodeConfig(msgspec.Struct, frozen=True, gc=False):
    """What is said about one node. 0 and empty: nothing is said."""

    name: str
    mode: str = ""
    split_count: Amount = 0
    memory_scaling_milli: Amount = 0
    cores_scaling_milli: Amount = 0
    hidden_ids: tuple[str, ...] = ()
    hidden_indexes: tuple[Amount, ...] = ()


class DeviceConfig(msgspec.Struct, frozen=True, gc=False):
    """Everything that is configured about devices."""

    nvidia: Nvidia = Nvidia()
    ascend: tuple[AscendChip, ...] = ()
    ascend_soft_slicing: bool = False
    nodes: tuple[NodeConfig, ...] = ()
