"""What the books must know of a device family: how its cards are partitioned, and what
`Holding.instance` means.

A family that is not listed in `_RULES` has plain shares: its cards are partitioned only where they
have a table, and an instance says nothing.
"""

from allotment.core.ledger.partitions.base import UNCONFIRMED, WHOLE, Partitioner
from allotment.core.ledger.partitions.mindcluster import MINDCLUSTER
from allotment_proto.facts import DeviceRequest
from allotment_proto.volcano import ascend, mindcluster, vgpu


class HoldingRules:
    """The rules of a family with plain shares."""

    partitioner: Partitioner | None = None
    """How all its cards are partitioned that have no table."""

    def is_share(self, instance: str) -> bool:
        """Whether a card that is not partitioned can have given this."""
        return True

    def answers(self, instance: str, request: DeviceRequest) -> bool:
        """Whether it is of the kind that the request of the same container asks for."""
        return True

    def granted(self, instance: str, request: DeviceRequest) -> str:
        """The piece that is claimed if it is as large as what is asked for, else one that is."""
        return ""

    def unknown(self, request: DeviceRequest) -> str:
        """The piece to book where a request may be on a card."""
        return WHOLE

    def shown(self, instance: str) -> str:
        """The piece as its users know it: a MIG instance, a template."""
        return instance


class _Vgpu(HoldingRules):
    def is_share(self, instance: str) -> bool:
        return not instance

    def granted(self, instance: str, request: DeviceRequest) -> str:
        """Which MIG instance a request gets depends on the card's other holders: each will do."""
        return instance


class _Ascend(HoldingRules):
    def answers(self, instance: str, request: DeviceRequest) -> bool:
        """A container may ask for chips of several kinds."""
        return ascend.parse_instance(instance)[0] == request.chip

    def granted(self, instance: str, request: DeviceRequest) -> str:
        word, template = ascend.parse_instance(instance)
        wanted = request.templates or ("",)
        return instance if template in wanted else ascend.instance_name(word, wanted[0])

    def unknown(self, request: DeviceRequest) -> str:
        return ascend.instance_name(request.chip, request.templates[0] if request.templates else "")

    def shown(self, instance: str) -> str:
        return ascend.parse_instance(instance)[1]


class _Mindcluster(HoldingRules):
    partitioner = MINDCLUSTER

    def granted(self, instance: str, request: DeviceRequest) -> str:
        piece = mindcluster.TEMPLATES.get(instance.removesuffix(UNCONFIRMED))
        if not request.templates or (piece and piece.cores == request.cores_pct):
            return instance if request.templates else ""
        return request.templates[0]

    def unknown(self, request: DeviceRequest) -> str:
        """Chips count pieces and tell none apart, so one more of the kind is what it takes. Of
        several kinds it is unknown which it is: such a chip gives nothing more."""
        if len(request.templates) > 1:
            return UNCONFIRMED
        return request.templates[0] if request.templates else WHOLE


_PLAIN = HoldingRules()
_RULES: dict[str, HoldingRules] = {
    vgpu.FAMILY: _Vgpu(),
    ascend.FAMILY: _Ascend(),
    mindcluster.FAMILY: _Mindcluster(),
}


def holding_rules(family: str) -> HoldingRules:
    """The rules of a family, whether or not this release knows it."""
    return _RULES.get(family, _PLAIN)
