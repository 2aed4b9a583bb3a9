"""What is wrong in a cluster: problems of the platform, and those of its tenants.

* `summary_of`: nodes, cards, and the pods that wait by cause.
* `findings`: all problems that follow from one state.
* `work_of`, `of_standstill`: no decisions although a pod fits, from two states.
* `of_pod`: the problems of one pod's node, cards and device plugin; `Began`: since when problems of
  nodes are open.
* `of_drift`: differences between the log and the API server.
* `of_log`, `of_leases`: about the stream that holds the log, and which replicas are active.

Everything is pure: the caller queries NATS, the services and the API server, and passes the answers
in.
"""

from allotment.core.explain.causes.why import Whys
from allotment.core.explain.doctor.began import Began, Moment, Open
from allotment.core.explain.doctor.cluster import (
    Source,
    of_cluster,
    of_configuration,
    of_pod,
    sources,
)
from allotment.core.explain.doctor.drift import of_drift
from allotment.core.explain.doctor.finding import (
    ERROR,
    PLATFORM,
    TENANT,
    WARNING,
    Finding,
    counted,
    in_order,
)
from allotment.core.explain.doctor.keeping_off import of_keeping_off
from allotment.core.explain.doctor.log import (
    SCHEDULER,
    SCHEDULING,
    Copy,
    Limit,
    LogStream,
    as_run,
    of_leases,
    of_log,
)
from allotment.core.explain.doctor.preferences import of_preferences
from allotment.core.explain.doctor.standstill import IDLE_AFTER_S, of_standstill, work_of
from allotment.core.explain.doctor.summary import Backlog, Summary, summary_of
from allotment.core.explain.doctor.waiting import of_waiting
from allotment.core.ledger.model import ClusterState

__all__ = [
    "ERROR",
    "IDLE_AFTER_S",
    "PLATFORM",
    "SCHEDULER",
    "SCHEDULING",
    "TENANT",
    "WARNING",
    "Backlog",
    "Began",
    "Copy",
    "Finding",
    "Limit",
    "LogStream",
    "Moment",
    "Open",
    "Source",
    "Summary",
    "as_run",
    "counted",
    "findings",
    "in_order",
    "of_drift",
    "of_leases",
    "of_log",
    "of_pod",
    "of_standstill",
    "sources",
    "summary_of",
    "work_of",
]


def findings(state: ClusterState, time_ms: int, whys: Whys | None = None) -> list[Finding]:
    """All problems of a state at that Unix time, in order; `whys` are those of the state."""
    found = (
        of_configuration(state),
        of_cluster(state, time_ms),
        of_waiting(state, time_ms, Whys(state) if whys is None else whys),
        of_keeping_off(state),
        of_preferences(state),
    )
    return in_order(one for part in found for one in part)
