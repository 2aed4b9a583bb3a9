"""Every decision of a world, made again from its log alone, must come out the same."""

from allotment.core.logport import Record
from allotment.core.replay.replay import Index, Replayer
from tests.sim.auditor import require


def verify(records: list[Record]) -> None:
    index = Index()
    for record in records:
        index.feed(record)
    replayer = Replayer(index.stops)
    for record in records:
        replayer.feed(record)
    report = replayer.report()
    require(
        report.identical == report.decisions,
        f"{report.different} of {report.decisions} decisions come out otherwise: "
        f"{report.first_difference}",
    )
