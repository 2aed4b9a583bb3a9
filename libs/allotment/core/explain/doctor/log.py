"""The stream that holds the log: how full it is, and which of its settings can lose history."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from allotment.core.explain.doctor.finding import ERROR, WARNING, Finding
from allotment.core.logport import Setting
from allotment.core.units import age_text, bytes_text

_NEARLY_FULL_PCT = 80
_FULL_PCT = 98
"""Above this the space left may be too small for the next record."""
_CERTIFICATE_LEFT_S = 30 * 24 * 3600
_NOBODY_ACTIVE = "NobodyActive"
_RECORDING = "watcher"
SCHEDULING = (_RECORDING, "filter", "scorer", "binder")
"""Without an active one of each of these services no pod is scheduled."""
SCHEDULER = "scheduler"
"""All of them, or all but the watcher, as one process."""
_FULL_REMEDY = (
    "enlarge the log: a larger volume and max_file_store of NATS if these are used up, then allot "
    "log limit SIZE; no record is lost meanwhile"
)


class Limit(NamedTuple):
    """A limit of the stream and what is used of it; `most` is 0 or less where there is none."""

    what: str
    used: int
    most: int


class Copy(NamedTuple):
    """Another server's copy of the log."""

    server: str
    is_offline: bool
    is_current: bool
    records_behind: int


class LogStream(NamedTuple):
    """What the server says of the stream. `wrong` are settings that can lose history, `warnings`
    are less serious ones. `grown_ms` is how old its oldest record is.
    """

    name: str
    limits: Sequence[Limit]
    wrong: Sequence[Setting]
    warnings: Sequence[str]
    replicas: int
    is_clustered: bool
    copies: Sequence[Copy] = ()
    grown_ms: int = 0
    certificate_left_s: int | None = None
    """For how long the certificate of the server that answered is still valid; None without TLS."""


def of_log(stream: LogStream) -> list[Finding]:
    """The problems of the log's stream."""
    return [*_fullness(stream), *_settings(stream), *_copies(stream), *_certificate(stream)]


def as_run(holders: Mapping[str, str]) -> dict[str, str]:
    """The services that are expected to be active, of all and `SCHEDULER`: where that is active, it
    stands for those without a replica of their own. By service its active replica, "" for none.
    """
    is_one = bool(holders.get(SCHEDULER))
    absent = SCHEDULING if is_one else (SCHEDULER,)
    return {name: holder for name, holder in holders.items() if holder or name not in absent}


def of_leases(holders: Mapping[str, str], scheduler_names: Collection[str]) -> list[Finding]:
    """The problems of active replicas: by service its active replica, "" for none. Without
    scheduler names Allotment only records, with the watcher alone.
    """
    if not scheduler_names:
        holders = {name: holder for name, holder in holders.items() if name == _RECORDING}
    idle = [name for name, holder in holders.items() if not holder]
    if len(idle) > 1 and len(idle) == len(holders):
        return [
            Finding(
                severity=ERROR,
                code=_NOBODY_ACTIVE,
                subject="services " + ", ".join(idle),
                message="none of them is active, so no pod is scheduled: none runs, or NATS takes "
                "no writes, as with a full disk",
                remedy="check that they run, and what their /readyz says. Look for "
                '"no space left on device" and "insufficient resources" in the log of NATS; free '
                "space and restart it",
            )
        ]
    return [
        Finding(
            severity=ERROR,
            code=_NOBODY_ACTIVE,
            subject=f"service {name}",
            message="no replica is active, so "
            + ("no pod is scheduled" if scheduler_names else "nothing is recorded"),
            remedy="check that it runs; read its log and /readyz",
        )
        for name in idle
    ]


def _fullness(stream: LogStream) -> Iterator[Finding]:
    for limit in stream.limits:
        if limit.most <= 0 or limit.used * 100 < limit.most * _NEARLY_FULL_PCT:
            continue
        pct = limit.used * 100 // limit.most
        is_full = pct >= _FULL_PCT
        left_ms = stream.grown_ms * (limit.most - limit.used) // max(limit.used, 1)
        pace = f"; at the pace so far it is full in {age_text(left_ms // 1000)}"
        stops = "; once it is full no record is appended, so no pod is scheduled"
        yield Finding(
            severity=ERROR if is_full else WARNING,
            code="LogFull" if is_full else "LogNearlyFull",
            subject=f"stream {stream.name}",
            message=f"{pct}% of {limit.what} is used: {_amount(limit.what, limit.used)} of "
            f"{_amount(limit.what, limit.most)}" + (stops if is_full else pace + stops),
            remedy=_FULL_REMEDY,
        )


def _settings(stream: LogStream) -> Iterator[Finding]:
    for setting in stream.wrong:
        yield Finding(
            severity=ERROR,
            code="LogSetting",
            subject=f"stream {stream.name}",
            message=f"{setting.name} is {setting.found or 'not set'}; wanted: {setting.wanted}",
            remedy="ask an administrator of NATS to change it; no service starts on such a stream",
        )
    for text in stream.warnings:
        yield Finding(
            severity=WARNING,
            code="LogSetting",
            subject=f"stream {stream.name}",
            message=text,
            remedy="ask an administrator of NATS to change it: nats stream edit",
        )


def _copies(stream: LogStream) -> Iterator[Finding]:
    if stream.is_clustered and stream.replicas == 1:
        yield Finding(
            severity=WARNING,
            code="LogOneReplica",
            subject=f"stream {stream.name}",
            message="has one copy, although NATS runs as a cluster: that server's disk is the log",
            remedy="keep three: nats stream edit --replicas=3 (for new logs: ALLOT_LOG_REPLICAS=3)",
        )
    for copy in stream.copies:
        if not copy.is_offline and copy.is_current:
            continue
        state = "is offline" if copy.is_offline else f"is {copy.records_behind} records behind"
        yield Finding(
            severity=WARNING,
            code="LogReplicaBehind",
            subject=f"stream {stream.name}",
            message=f"its copy on NATS server {copy.server} {state}",
            remedy=f"check the NATS server {copy.server}; if it runs and stays behind, restart it",
        )


def _certificate(stream: LogStream) -> Iterator[Finding]:
    left_s = stream.certificate_left_s
    if left_s is None or left_s > _CERTIFICATE_LEFT_S:
        return
    ends = f"expires in {age_text(left_s)}" if left_s > 0 else f"expired {age_text(-left_s)} ago"
    yield Finding(
        severity=WARNING if left_s > 0 else ERROR,
        code="CertificateExpires",
        subject="service nats",
        message=f"its TLS certificate {ends}; without a valid one no service can connect to NATS",
        remedy="with cert-manager: kubectl -n allotment-system rollout restart statefulset "
        "allotment-nats. Without: allot nats-setup --replace-certificate, three times, each "
        "followed by the restarts that deploy/README.md lists under TLS",
    )


def _amount(what: str, number: int) -> str:
    if what == "max_msgs":
        return f"{number:,} records"
    return bytes_text(number)
