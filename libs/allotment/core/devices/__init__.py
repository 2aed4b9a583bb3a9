"""Device families, one file each. A new family is one entry in `FAMILIES`."""

from allotment.core.devices.base import Family
from allotment.core.devices.gpushare import Gpushare
from allotment.core.devices.vgpu import Vgpu

FAMILIES: dict[str, Family] = {family.name: family for family in (Gpushare(), Vgpu())}
"""Every known family by name, in the order in which a pod's requests are asked."""
