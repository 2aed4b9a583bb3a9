"""`allot doctor`: problems of the platform and of its tenants, from the log, NATS and services."""

import re
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from contextlib import aclosing
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import anyio
import click
import msgspec

from allotment.adapters.log.jetstream import parse_time_ns
from allotment.adapters.log.stream_rules import check_stream
from allotment.adapters.service.moments import AtTime, since_text
from allotment.answers import local
from allotment.answers import source as logs
from allotment.answers.cluster import Access, Cluster
from allotment.answers.folding import (
    CHUNK_RECORDS,
    AsOf,
    Folded,
    Unreadable,
    as_of,
    dated,
    fold,
    fold_at,
)
from allotment.answers.kubeconfig import Choice
from allotment.answers.source import Origin
from allotment.core.errors import AllotError
from allotment.core.explain.causes.why import Whys
from allotment.core.explain.doctor import (
    ERROR,
    IDLE_AFTER_S,
    PLATFORM,
    SCHEDULING,
    TENANT,
    WARNING,
    Backlog,
    Copy,
    Finding,
    Limit,
    LogStream,
    Source,
    Summary,
    counted,
    findings,
    in_order,
    of_drift,
    of_leases,
    of_log,
    of_standstill,
    sources,
    summary_of,
    work_of,
)
from allotment.core.ledger.model import ClusterState
from allotment.core.logport import Record
from allotment.core.reasons import REASONS, Cure
from allotment.core.units import age_text
from allotment_cli.options import completion
from allotment_cli.options.params import at_option, output_option
from allotment_cli.options.source import (
    chosen_cluster,
    cluster_of,
    open_cluster,
    open_source,
    source_options,
)
from allotment_cli.show.output import (
    DOCUMENTS,
    Prose,
    emit,
    emit_document,
    heading,
    note,
    table,
)
from allotment_cli.show.progress import waiting
from allotment_proto.codec import UndecodableError, decode_envelope
from allotment_proto.events import Decided, PodObserved
from allotment_proto.subjects import DECISION, LOG_ALL, STREAM
from allotment_proto.volcano import reserved

FOUND = 1
_API_SERVER = "apiserver"
"""Its name among the services of local mode."""
INDENT = " " * 8
LABEL = 9
_NAMESPACED = re.compile(r"\w+ '([^'/]+)/[^'/]+'")
"""How a service names an object of a namespace that it rejects: ``Pod 'a/b'``."""
SETTLES_S = 3.0
"""Longer than a fact takes from the API server into the log on a busy machine."""
CORRECTED_WITHIN_S = 30.0


class Services(msgspec.Struct, frozen=True, rename="camel"):
    """How many services were asked, and how many of them are ready."""

    asked: int
    ready: int


class Report(msgspec.Struct, frozen=True, rename="camel"):
    """The findings as JSON. `neverStart` is how many pods cannot start as they are, `comparedWith`
    the API server that the log was compared with (empty: none), `corrected` the findings that were
    corrected because the watcher listed again.
    """

    schema: str
    as_of: AsOf
    configuration: Sequence[Source]
    findings: Sequence[Finding]
    unreadable: tuple[Unreadable, ...]
    never_start: int
    compared_with: str = ""
    corrected: Sequence[Finding] = ()
    services: Services | None = None
    summary: Summary | None = None


class _Named(msgspec.Struct):
    name: str
    uid: str = ""


class ObjectName(msgspec.Struct):
    """The name and uid of an object."""

    metadata: _Named


class _Enforced(msgspec.Struct):
    """What the binding of an admission policy does with rejected objects."""

    validation_actions: list[str] = msgspec.field(default_factory=list, name="validationActions")


class _PolicyBinding(msgspec.Struct):
    spec: _Enforced


class Drift(NamedTuple):
    """Where log and API server differ, for longer than a fact takes to be recorded, and what every
    client may write into the API server."""

    compared_with: str = ""
    found: Sequence[Finding] = ()
    corrected: Sequence[Finding] = ()
    unguarded: Sequence[Finding] = ()


def _kinds(
    context: click.Context, parameter: click.Parameter, chosen: tuple[str, ...]
) -> tuple[str, ...]:
    """Kinds and codes. Raises click.BadParameter for a word that is neither."""
    for word in chosen:
        if word not in (PLATFORM, TENANT) and not word[:1].isupper():
            raise click.BadParameter(f"{word!r} is not platform, tenant or a code like NodeGone")
    return chosen


@click.command()
@source_options
@click.option(
    "-n",
    "--namespace",
    shell_complete=completion.namespaces,
    help="Only problems that affect pods of this namespace.",
)
@click.option(
    "--severity", type=click.Choice((ERROR, WARNING)), help="Only problems of this severity."
)
@click.option(
    "--kind",
    "kinds",
    metavar="KIND",
    multiple=True,
    callback=_kinds,
    shell_complete=completion.words(PLATFORM, TENANT, *REASONS),
    help="Only problems of this kind: platform, tenant, or a code (may be repeated).",
)
@click.option("--strict", is_flag=True, help="Exit with 1 for problems of tenants, too.")
@click.option(
    "--fix",
    is_flag=True,
    help="Where the log and the API server differ, ask the watcher to list again.",
)
@at_option
@click.option(
    "--services",
    metavar="HOST:PORT,...",
    default="",
    help="HTTP addresses of services to ask, in addition to those that are found.",
)
@output_option(*DOCUMENTS)
@click.pass_context
def doctor(
    context: click.Context,
    origin: Origin,
    namespace: str | None,
    severity: str | None,
    kinds: tuple[str, ...],
    strict: bool,
    fix: bool,
    at: str | None,
    services: str,
    output: str,
) -> None:
    """Show the state of the cluster and its problems, each with what to do next.

    First the services, nodes and cards, and the pods that wait by cause. Then problems of the
    platform, for the people who run the cluster: services that are not ready, a log that is nearly
    full, nodes and cards that are gone, unhealthy, oversold or held back, configuration that is
    rejected or has no effect, device plugins that do not handle a pod, pods that fit but are not
    scheduled, and differences between the log and the API server. Then problems of tenants by
    namespace: pods that cannot start as they are, with the cause, ignored annotations and queues
    whose quota pods wait for.

    Services are asked in local mode, in a cluster, and with --services. The API server is local
    mode's, or the one that --kubeconfig or --context names.

    --fix asks the watcher to list pods and nodes again. The watcher reads the API server only and
    corrects the log by recording what it sees; the corrected differences are printed.

    Exit code 1 if a problem of the platform is listed; with --strict, if any problem is.
    """
    if (origin.file is not None or at is not None) and fix:
        raise AllotError("the past is not corrected", "leave out --fix, or --file and --at")
    named = [_address(text) for text in services.split(",") if text.strip()]

    def is_wanted(one: Finding) -> bool:
        return (
            (namespace is None or namespace in one.namespaces)
            and severity in (None, one.severity)
            and (not kinds or one.kind in kinds or one.code in kinds)
        )

    rows, examined = anyio.run(_look, origin, at, fix, named)
    asked = [one for row in rows for one in _of_service(row) if is_wanted(one)]
    answered = Services(len(rows), sum(row["ready"] for row in rows)) if rows else None
    if isinstance(examined, AllotError):
        if asked and output == "text":  # why the log cannot be read may be among them
            emit([*_services_lines(answered), *_lines(asked, None)])
        raise examined
    folded, summary, in_log, drift = examined
    in_log = [*in_log, *map(_of_unreadable, folded.unreadable)]
    found = in_order([*asked, *filter(is_wanted, in_log)])
    read = sources(folded.state)
    if output in DOCUMENTS:
        report = Report(
            "allotment.dev/doctor/v1",
            as_of(folded),
            read,
            found,
            folded.unreadable,
            sum(one.never_start for one in found),
            drift.compared_with,
            drift.corrected,
            answered,
            summary,
        )
        emit_document(report, output)
    else:
        emit(_corrected_lines(drift.corrected))
        emit(_services_lines(answered))
        emit(_summary_lines(summary, read, folded.time_ms))
        emit(_lines(found, folded.time_ms))
    if any(strict or one.kind == PLATFORM for one in found):
        context.exit(FOUND)


def _address(text: str) -> str:
    """`host:port` of an address that may be written as a URL. Raises AllotError."""
    address = text.strip().removeprefix("http://").removesuffix("/").removesuffix("/readyz")
    _, _, port = address.rpartition(":")
    if not port.isdecimal() or "/" in address:
        raise AllotError(
            f"--services: {text.strip()!r} is not the address of a service",
            "write host:port of its HTTP server, for example allotment-binder:8080",
        )
    return address


async def _look(
    origin: Origin, at: str | None, fix: bool, named: Sequence[str]
) -> tuple[list[dict[str, Any]], "_Examined | AllotError"]:
    """The services' answers, and the problems in the log, or why it cannot be read. All services
    are asked at once, while the log is read.
    """
    answers = _Answers()
    examined: _Examined | AllotError
    async with anyio.create_task_group() as asking:
        if at is None:
            asking.start_soon(answers.ask, origin, named)
        else:
            answers.are_there.set()
        try:
            examined = await _examine(origin, at, fix, answers)
        except AllotError as error:
            examined = error
        with waiting("waiting for services to answer"):
            await answers.are_there.wait()
    return answers.rows, examined


class _Answers:
    """What services answer, each as a row of `local.status`, once all did or timed out."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self.are_there = anyio.Event()

    async def ask(self, origin: Origin, named: Sequence[str]) -> None:
        """Ask the named ones, and those of local mode if the log is its own, all at once."""
        by_address: dict[str, dict[str, Any]] = {}

        async def of_local_mode() -> None:
            self.rows += (await local.status(origin.home))["services"]

        async def of_cluster(choice: Choice) -> None:
            from allotment.answers import in_cluster

            try:
                self.rows += await in_cluster.services(choice)
            except AllotError as error:
                note(f"the services are not asked: {error.message}")

        async def of(address: str) -> None:
            by_address[address] = await local.ask_service(address)

        async with anyio.create_task_group() as asking:
            if origin.file is None and not origin.nats:
                if (choice := cluster_of(origin)) is None:
                    asking.start_soon(of_local_mode)
                else:
                    asking.start_soon(of_cluster, choice)
            for address in named:
                asking.start_soon(of, address)
        self.rows += [by_address[address] for address in named]
        self.are_there.set()

    async def silent(self, name: str) -> str:
        """Why a service of local mode is not ready; empty if it is, or is not among them."""
        with waiting("waiting for services to answer"):
            await self.are_there.wait()
        found = next((row for row in self.rows if row["name"] == name and not row["ready"]), None)
        return "" if found is None else found["detail"] or "it is not ready"


def _of_service(row: dict[str, Any]) -> Iterator[Finding]:
    subject = f"service {row['name']}"
    if not row["ready"]:
        pid = row.get("pid")
        detail = row["detail"] or "the service is not ready and gives no reason"
        remedy = f"read its log: {row['log']}"
        if pid is not None and _is_stopped(pid):
            detail += f"; its process {pid} is stopped (SIGSTOP)"
            remedy = f"resume it: kill -CONT {pid}"
        yield Finding(
            severity=ERROR,
            code="ServiceNotReady",
            subject=subject,
            message=detail,
            remedy=remedy,
        )
    for line in row.get("refused", ()):
        namespaced = _NAMESPACED.match(line)
        yield Finding(
            severity=WARNING,
            code="ObjectRefused",
            subject=subject,
            message=line,
            remedy="fix or delete the object; the service ignores it until then",
            kind=TENANT if namespaced else PLATFORM,
            namespaces=(namespaced[1],) if namespaced else (),
        )


def _of_unreadable(record: Unreadable) -> Finding:
    return Finding(
        severity=ERROR,
        code="RecordUnreadable",
        subject="log",
        message=f"record {record.seq} ({record.subject}) cannot be read: {record.reason}",
        remedy=f"see the record: allot log show {record.seq}. It has no effect",
        seq=record.seq,
    )


def _is_stopped(pid: int) -> bool:
    """Whether a process of this machine is stopped; False where that cannot be seen."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[:1] == ["T"]


_Examined = tuple[Folded, Summary, list[Finding], Drift]
"""The log folded, the cluster in numbers, its problems, and the differences to the API server."""


async def _examine(origin: Origin, at: str | None, fix: bool, answers: _Answers) -> _Examined:
    """Fold the log, and find problems in it, of its stream, and compared with the API server."""
    async with open_source(origin) as source:
        drift = Drift()
        if origin.file is None and at is None:
            drift = await _drift(origin, source, fix, answers)
        folded = await fold_at(source, at)
        with waiting("checking pods, nodes and cards"):
            whys = Whys(folded.state)
            found = [*findings(folded.state, folded.time_ms, whys)]
            names = folded.state.policy.scheduler_names
            found += [*drift.found, *(drift.unguarded if names else ())]
            summary = summary_of(folded.state, whys)
        found += await _standstill(source, folded)
        if at is None:
            found += await _of_nats(source, folded.time_ms, names)
        return folded, summary, await dated(source, found, folded.seq), drift


async def _of_nats(source: logs.Source, now_ms: int, names: Collection[str]) -> list[Finding]:
    """Problems of the log's stream, and services without an active replica."""
    info = await source.stream_info()
    if info is None:
        return []
    asked: dict[str, dict[str, Any] | None] = {}

    async def ask(name: str, question: Callable[[], Awaitable[dict[str, Any] | None]]) -> None:
        asked[name] = await question()

    async with anyio.create_task_group() as group:
        group.start_soon(ask, "storage", source.storage)
        group.start_soon(ask, "active", partial(source.active, SCHEDULING))
    stream = _stream_of(info, asked["storage"], now_ms)
    if ends_s := source.certificate_ends_s:
        stream = stream._replace(certificate_left_s=ends_s - now_ms // 1000)
    found = of_log(stream)
    if asked["active"] is None:
        note("cannot tell which replicas are active: this key may not read the leases")
        return found
    return [*found, *of_leases(asked["active"], names)]


async def _drift(origin: Origin, source: logs.Source, fix: bool, answers: _Answers) -> Drift:
    """Compare the log with the API server, if it is known which one."""
    chosen = chosen_cluster()
    if origin.nats and chosen is None:
        note("the log is not compared with an API server: name one with --kubeconfig or --context")
        return Drift()
    access = Access(origin.home, *(chosen or ()))
    try:
        if chosen is None:  # KUBECONFIG may be about another cluster than local mode's log is
            access = access._replace(kubeconfig=local.addresses(origin.home).kubeconfig)
            if why := await answers.silent(_API_SERVER):
                raise AllotError(why)
        async with open_cluster(access) as cluster:
            name = access.kubeconfig or access.context or "the kubeconfig's cluster"
            unguarded = await _unguarded(cluster)
            found = await _lasting(source, cluster, await _differences(source, cluster))
            if not found or not fix:
                return Drift(str(name), found, unguarded=unguarded)
            await source.ask_to_list()
            left = await _until_right(source, cluster, found)
            corrected = [one for one in found if _key(one) not in {_key(one) for one in left}]
            return Drift(str(name), left, corrected, unguarded)
    except AllotError as error:
        if chosen is not None or fix:
            raise
        note(f"the log is not compared with the API server: {error.message}")
        return Drift()


async def _unguarded(cluster: Cluster) -> list[Finding]:
    """Whether every client may write which devices a pod holds."""
    base = "/apis/admissionregistration.k8s.io/v1"
    name, what = reserved.POLICY, f"admission policy {reserved.POLICY}"
    try:
        policy = await cluster.find(f"{base}/validatingadmissionpolicies/{name}", what, ObjectName)
        binding = await cluster.find(
            f"{base}/validatingadmissionpolicybindings/{name}", what, _PolicyBinding
        )
    except AllotError as error:
        note(f"cannot tell whether annotations are guarded: {error.message}")
        return []
    is_there = policy is not None and binding is not None
    if is_there and binding is not None and "Deny" in binding.spec.validation_actions:
        return []
    return [
        Finding(
            severity=WARNING,
            code="AssignmentsUnguarded",
            subject=f"admission policy {name}",
            message=f"the API server {'does not enforce' if is_there else 'lacks'} it: users "
            "who may create or edit a pod can write the annotations that device plugins assign "
            "cards by, and so take other pods' cards",
            remedy="run kubectl apply -f deploy/base/annotation-policy.yaml -f "
            "deploy/base/annotation-writers.yaml (Kubernetes 1.30 or later); first add the "
            "accounts of your device plugins to the second file",
        )
    ]


async def _differences(source: logs.Source, cluster: Cluster) -> list[Finding]:
    """The differences at this moment. The log is read last, so it is the newer one."""
    raw = await cluster.list("/api/v1/pods", "pods", msgspec.Raw)
    listed = await cluster.list("/api/v1/nodes", "nodes", ObjectName)
    folded = await fold(source, None)
    pods, unread = _facts(folded.state, raw)
    nodes = {node.metadata.name: node.metadata.uid for node in listed}
    return of_drift(folded.state, pods, nodes, unread)


def _facts(state: ClusterState, raw: Iterable[msgspec.Raw]) -> tuple[list[PodObserved], set[str]]:
    """The pods as the watcher reads them, and the uids of those that cannot be read."""
    from allotment_watcher.normalise import pod_fact
    from allotment_watcher.objects import PodObject

    facts: list[PodObserved] = []
    unread: set[str] = set()
    for item in raw:
        try:
            pod = msgspec.json.decode(item, type=PodObject)
        except msgspec.MsgspecError:
            unread.add(msgspec.json.decode(item, type=ObjectName).metadata.uid)
            continue
        facts.append(pod_fact(pod, state.policy, state.devices))
    return facts, unread


async def _lasting(source: logs.Source, cluster: Cluster, found: list[Finding]) -> list[Finding]:
    """The differences that remain after a fact had time to be recorded."""
    if not found:
        return []
    with waiting("the log and the API server differ; checking again"):
        await anyio.sleep(SETTLES_S)
    now = {_key(one) for one in await _differences(source, cluster)}
    return [one for one in found if _key(one) in now]


async def _until_right(
    source: logs.Source, cluster: Cluster, found: list[Finding]
) -> list[Finding]:
    """The differences that remain after the watcher had time to list."""
    wanted = {_key(one) for one in found}
    left = found
    with anyio.move_on_after(CORRECTED_WITHIN_S):
        while left:
            with waiting("waiting for the watcher to correct the log"):
                await anyio.sleep(SETTLES_S / 2)
            left = [one for one in await _differences(source, cluster) if _key(one) in wanted]
    return left


def _key(finding: Finding) -> tuple[str, str]:
    return finding.code, finding.subject


async def _standstill(source: logs.Source, folded: Folded) -> list[Finding]:
    """Work that no service did."""
    state, time_ms = folded.state, folded.time_ms
    decided_seq, decided_ms = await _last_decided(source, state.decision_seq)
    is_silent = bool(state.pending) and time_ms - decided_ms > IDLE_AFTER_S * 1000
    with waiting("trying what could be decided"):
        now = work_of(state, is_silent=is_silent)
    if not now:
        return []
    then = await fold(source, AtTime(time_ms - IDLE_AFTER_S * 1000))
    with waiting("trying what could be decided then"):
        before = work_of(then.state, is_silent=is_silent)
    return of_standstill(state, before, now, time_ms, decided_ms, decided_seq)


async def _last_decided(source: logs.Source, last_seq: int) -> tuple[int, int]:
    """The last record at or before `last_seq` that holds a decision, and when it was appended, in
    Unix milliseconds; zeros for none. Where a binder begins, a record holds none.
    """
    first = end = last_seq
    while end > 0:
        found = 0, 0
        async with aclosing(source.read(first, end)) as batches:
            async for batch in batches:
                for record in batch:
                    if record.subject == DECISION and _decides(record):
                        found = record.seq, record.time_ns // 1_000_000
        if found[0]:
            return found
        end = first - 1
        first = max(1, end - CHUNK_RECORDS + 1)
    return 0, 0


def _decides(record: Record) -> bool:
    try:
        events = decode_envelope(record.payload, record.subject).events
    except UndecodableError:
        return False
    return any(isinstance(event, Decided) for event in events)


def _stream_of(info: dict[str, Any], storage: dict[str, Any] | None, now_ms: int) -> LogStream:
    """What JetStream's answers say of the log, and of its account's storage."""
    account = storage or {}
    config, used = info["config"], info["state"]
    cluster = info.get("cluster") or {}
    wrong, warnings = check_stream(config, (LOG_ALL,), replicas=1)
    first = used.get("first_ts") if used.get("messages") else None
    return LogStream(
        name=STREAM,
        limits=(
            Limit("max_bytes", used.get("bytes", 0), config.get("max_bytes", -1)),
            Limit("max_msgs", used.get("messages", 0), config.get("max_msgs", -1)),
            Limit(
                "the storage of NATS's account",
                account.get("storage", 0),
                account.get("limits", {}).get("max_storage", -1),
            ),
        ),
        wrong=wrong,
        warnings=warnings,
        replicas=config.get("num_replicas", 1),
        is_clustered=bool(cluster.get("name")),
        copies=tuple(
            Copy(
                str(copy.get("name", "")),
                bool(copy.get("offline")),
                bool(copy.get("current", True)),
                int(copy.get("lag", 0)),
            )
            for copy in cluster.get("replicas") or ()
        ),
        grown_ms=max(now_ms - parse_time_ns(first) // 1_000_000, 0) if first else 0,
    )


def _services_lines(services: Services | None) -> list[str]:
    if services is None:
        return []
    down = services.asked - services.ready
    return [_field("Services", _parts((services.ready, "ready"), (down, "NotReady")))]


def _summary_lines(summary: Summary, read: Sequence[Source], now_ms: int | None) -> list[str]:
    """The cluster in a few lines, and the pods that wait by cause."""
    nodes, cards, backlog = summary.nodes, summary.cards, summary.waiting
    lines = [
        _field(
            "Nodes",
            _parts(
                (nodes.ready, "Ready"),
                (nodes.not_ready, "NotReady"),
                (nodes.gone, "Gone"),
                (nodes.cordoned, "Cordoned"),
            ),
        ),
        _field(
            "Cards",
            _parts(
                (cards.idle, "idle"),
                (cards.partly, "partly in use"),
                (cards.full, "full"),
                (cards.unhealthy, "Unhealthy"),
            ),
        ),
    ]
    configured = (f"{one.kind} {one.source}" + f" (seq {one.seq})" * bool(one.seq) for one in read)
    lines.append(_field("Config", "; ".join(configured)))
    if not backlog:
        return [*lines, _field("Waiting", "no pods")]
    oldest_ms = min(row.since_ms for row in backlog)
    total = counted(sum(row.pods for row in backlog), "pod")
    lines.append(_field("Waiting", f"{total}, the oldest for {_age(oldest_ms, now_ms)}"))
    rows = [[str(row.pods), _age(row.since_ms, now_ms), row.code, _until(row)] for row in backlog]
    headers = ["PODS", "OLDEST", "CAUSE", "UNTIL"]
    return [*lines, *table(headers, rows, right=("PODS", "OLDEST"), indent=" " * LABEL)]


def _parts(*counts: tuple[int, str]) -> str:
    """``4 Ready, 1 Gone``; the first even if it is 0."""
    first, *others = counts
    return ", ".join(
        f"{number} {word}" for number, word in (first, *others) if number or word == first[1]
    )


def _field(label: str, text: str) -> str:
    return Prose(f"{label:<{LABEL}}{text}", LABEL)


def _until(row: Backlog) -> str:
    """What ends a wait, in words."""
    if row.never == row.pods:
        return "the request or the nodes change"
    cure = Cure[row.cured_by.upper()].value if row.cured_by else ""
    return cure + (f" (for {row.never}: the request or the nodes change)" if row.never else "")


def _age(since_ms: int, now_ms: int | None) -> str:
    return age_text(max((now_ms or since_ms) - since_ms, 0) // 1000)


def _lines(found: Sequence[Finding], now_ms: int | None) -> list[str]:
    """The problems below the headings of those who have to look at them."""
    lines: list[str] = []
    title = ""
    for one in found:
        if title != (title := _title(one)):
            lines += ["", heading(title)]
        lines += _finding_lines(one, now_ms)
    never = sum(one.never_start for one in found)
    lines += [""] if lines else []
    if never:
        are = "it is" if never == 1 else "they are"
        lines.append(f"{counted(never, 'pod')} cannot start as {are}")
    return [*lines, _counts(found) or "no problems found"]


def _title(one: Finding) -> str:
    if one.kind == PLATFORM:
        return "Platform"
    match one.namespaces:
        case [namespace]:
            return f"Namespace {namespace}"
        case _:
            return f"Namespaces {', '.join(one.namespaces)}"


def _finding_lines(one: Finding, now_ms: int | None) -> list[str]:
    seq = f" (seq {one.seq})" if one.seq else ""
    head = Prose(f"{one.severity:<8}{one.code}   {one.subject}{seq}", len(INDENT))
    lines = [heading(head), _indented(one.message)]
    if one.since and now_ms is not None:
        lines.append(_indented(f"since {since_text(one.since, now_ms)}"))
    return [*lines, _indented(one.remedy)]


def _counts(found: Sequence[Finding]) -> str:
    """``platform: 1 error, 2 warnings; tenants: 4 warnings``"""
    texts = []
    for kind, name in ((PLATFORM, "platform"), (TENANT, "tenants")):
        errors = sum(one.kind == kind and one.severity == ERROR for one in found)
        warnings = sum(one.kind == kind and one.severity != ERROR for one in found)
        counts = [counted(n, word) for n, word in ((errors, ERROR), (warnings, WARNING)) if n]
        texts += [f"{name}: {', '.join(counts)}"] if counts else []
    return "; ".join(texts)


def _corrected_lines(corrected: Sequence[Finding]) -> list[str]:
    return [f"corrected {one.code}   {one.subject}: log and API server agree" for one in corrected]


def _indented(text: str) -> str:
    """A text below its heading."""
    return Prose(INDENT + text, len(INDENT))
