"""What is wrong in a cluster: things that somebody should look at.

* `findings`: all that follows from one state.
* `work_of`, `of_standstill`: nothing is decided although something fits, from two states.
* `of_drift`: where the log and the API server differ.
* `of_log`, `of_leases`: about the stream that holds the log, and who is active.

Everything is pure: what has to be asked of NATS, of services and of the API server is asked by the
caller and handed in.
"""

from allotment.core.explain.doctor.cluster import Source, of_cluster, of_configuration, sources
from allotment.core.explain.doctor.drift import of_drift
from allotment.core.explain.doctor.finding import ERROR, WARNING, Finding, in_order
from allotment.core.explain.doctor.keeping_off import of_keeping_off
from allotment.core.explain.doctor.log import Copy, Limit, LogStream, of_leases, of_log
from allotment.core.explain.doctor.preferences import of_preferences
from allotment.core.explain.doctor.standstill import IDLE_AFTER_S, of_standstill, work_of
from allotment.core.explain.doctor.waiting import of_waiting
from allotment.core.ledger.model import ClusterState

__all__ = [
    "ERROR",
    "IDLE_AFTER_S",
    "WARNING",
    "Copy",
    "Finding",
    "Limit",
    "LogStream",
    "Source",
    "findings",
    "in_order",
    "of_drift",
    "of_leases",
    "of_log",
    "of_standstill",
    "sources",
    "work_of",
]


def findings(state: ClusterState, time_ms: int) -> list[Finding]:
    """Everything that stands out in a state at that Unix time, in order."""
    found = (
        of_configuration(state),
        of_cluster(state, time_ms),
        of_waiting(state, time_ms),
        of_keeping_off(state),
        of_preferences(state),
    )
    return in_order(one for part in found for one in part)
