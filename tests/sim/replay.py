"""Every decision of a world, made again from its log alone, must come out the same."""

from allotment.core.logport import Record
from tests.replaying import replayed
from tests.sim.auditor import require


def verify(records: list[Record]) -> None:
    report = replayed(records)
    require(
        report.identical == report.decisions,
        f"{report.different} of {report.decisions} decisions come out otherwise: "
        f"{report.first_difference}",
    )
