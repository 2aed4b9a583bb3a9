"""`allot doctor`: what somebody should look at, from the log, NATS and the services."""

import textwrap
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import aclosing
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import anyio
import click
import msgspec

from allotment.adapters.log.jetstream import parse_time_ns
from allotment.adapters.log.stream_rules import check_stream
from allotment.core.explain.doctor import (
    ERROR,
    IDLE_AFTER_S,
    WARNING,
    Copy,
    Finding,
    Limit,
    LogStream,
    Source,
    findings,
    in_order,
    of_drift,
    of_leases,
    of_log,
    of_standstill,
    sources,
    work_of,
)
from allotment.core.ledger import snapshot
from allotment.core.ledger.model import ClusterState
from allotment.core.logport import Record
from allotment.core.units import age_text, rfc3339
from allotment_cli import local, moments
from allotment_cli import source as logs
from allotment_cli.apiserver import Access, Cluster, open_cluster
from allotment_cli.errors import CliError
from allotment_cli.folding import AsOf, Folded, Unreadable, as_of, fold, fold_at
from allotment_cli.kubeconfig import Choice
from allotment_cli.moments import AtTime
from allotment_cli.output import (
    DOCUMENTS,
    Prose,
    emit,
    emit_document,
    heading,
    note,
    screen_width,
)
from allotment_cli.params import at_option, output_option
from allotment_cli.progress import waiting
from allotment_cli.source import Origin, chosen_cluster, cluster_of, open_source, source_options
from allotment_proto.codec import UndecodableError, decode_envelope
from allotment_proto.events import Decided, NodeGone, PodObserved
from allotment_proto.subjects import DECISION, LOG_ALL, STREAM
from allotment_proto.volcano import reserved

FOUND = 1
_API_SERVER = "apiserver"
"""Its name among the services of local mode."""
INDENT = " " * 8
SETTLES_S = 3.0
"""Longer than a fact takes from the API server into the log on a busy machine."""
CORRECTED_WITHIN_S = 30.0
LOOK_BACK_RECORDS = 100_000
"""So far back it is looked for when a node went."""
CHUNK_RECORDS = 2048
SCHEDULING = ("watcher", "filter", "scorer", "binder")
"""Without one of these nothing is scheduled."""


class Report(msgspec.Struct, frozen=True, rename="camel"):
    """The findings as JSON. `neverStart` is how many pods cannot start as they are, `comparedWith`
    the API server that the log was compared with (empty: it was not), `corrected` what was found
    and is right now, because the watcher was asked to list again.
    """

    schema: str
    as_of: AsOf
    configuration: Sequence[Source]
    findings: Sequence[Finding]
    unreadable: tuple[Unreadable, ...]
    never_start: int
    compared_with: str = ""
    corrected: Sequence[Finding] = ()


class _Named(msgspec.Struct):
    name: str
    uid: str = ""


class ObjectName(msgspec.Struct):
    """Of an object which one it is."""

    metadata: _Named


class _Enforced(msgspec.Struct):
    """Of the binding of an admission policy, what it does with what is refused."""

    validation_actions: list[str] = msgspec.field(default_factory=list, name="validationActions")


class _PolicyBinding(msgspec.Struct):
    spec: _Enforced


class Drift(NamedTuple):
    """Where log and API server differ, for longer than a fact takes to be recorded, and what the
    API server lets everybody write."""

    compared_with: str = ""
    found: Sequence[Finding] = ()
    corrected: Sequence[Finding] = ()
    unguarded: Sequence[Finding] = ()


@click.command()
@source_options
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
    home: Path,
    nats: str | None,
    file: Path | None,
    fix: bool,
    at: str | None,
    services: str,
    output: str,
) -> None:
    """List problems that need attention, each with what to do about it.

    From the log: pods that fit and nobody decides about, or that nobody binds; pods that cannot
    start as they are, by cause; nodes that are gone or not ready with pods on them; configuration
    that is refused or has no effect; cards that are unhealthy, oversold or in quarantine; pods that
    no device plugin serves. From NATS: whether the log is nearly full, settings that can lose
    history, and services of which no replica is active, as with a full disk. In local mode, in a
    cluster, and with --services: services that do not answer or are not ready, and objects that
    services refuse. From the API server (local mode's, or the one that --kubeconfig or --context
    names), where it differs from the log, and which of the two is wrong.

    --fix asks the watcher to list pods and nodes again. It believes nothing but the API server, and
    corrects the log by recording what it sees; what is right then is printed.

    Exit code 1 if there is any problem.
    """
    if (file is not None or at is not None) and fix:
        raise CliError("the past is not corrected", "leave out --fix, or --file and --at")
    origin = Origin(home, nats, file)
    named = [_address(text) for text in services.split(",") if text.strip()]
    asked, examined = anyio.run(_look, origin, at, fix, named)
    if isinstance(examined, CliError):
        if asked and output == "text":  # why the log cannot be read may be among them
            emit(_lines((), asked, (), None, screen_width()))
        raise examined
    folded, found, drift = examined
    found = in_order([*asked, *found])
    read = sources(folded.state)
    if output in DOCUMENTS:
        never = sum(one.never_start for one in found)
        report = Report(
            "allotment.dev/doctor/v1",
            as_of(folded),
            read,
            found,
            folded.unreadable,
            never,
            drift.compared_with,
            drift.corrected,
        )
        emit_document(report, output)
    else:
        emit(_corrected_lines(drift.corrected))
        emit(_lines(read, found, folded.unreadable, folded.time_ms, screen_width()))
    if found or folded.unreadable:
        context.exit(FOUND)


def _address(text: str) -> str:
    """`host:port` of what may be written as a URL. Raises CliError."""
    address = text.strip().removeprefix("http://").removesuffix("/").removesuffix("/readyz")
    _, _, port = address.rpartition(":")
    if not port.isdecimal() or "/" in address:
        raise CliError(
            f"--services: {text.strip()!r} is not the address of a service",
            "write host:port of its HTTP server, for example allotment-binder:8080",
        )
    return address


async def _look(
    origin: Origin, at: str | None, fix: bool, named: Sequence[str]
) -> tuple[list[Finding], "_Examined | CliError"]:
    """What the services say of themselves, and what the log says, or why it cannot be read. Nobody
    waits for one service after the other, nor to read the log for any of them.
    """
    answers = _Answers()
    examined: _Examined | CliError
    async with anyio.create_task_group() as asking:
        if at is None:
            asking.start_soon(answers.ask, origin, named)
        else:
            answers.are_there.set()
        try:
            examined = await _examine(origin, at, fix, answers)
        except CliError as error:
            examined = error
        with waiting("waiting for services to answer"):
            await answers.are_there.wait()
    return [finding for row in answers.rows for finding in _of_service(row)], examined


class _Answers:
    """What services answer, each as a row of `local.status`, once all did or had their time."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self.are_there = anyio.Event()

    async def ask(self, origin: Origin, named: Sequence[str]) -> None:
        """Ask the named ones, and those of local mode where the log is its, all at once."""
        by_address: dict[str, dict[str, Any]] = {}

        async def of_local_mode() -> None:
            self.rows += (await local.status(origin.home))["services"]

        async def of_cluster(choice: Choice) -> None:
            from allotment_cli import in_cluster

            try:
                self.rows += await in_cluster.services(choice)
            except CliError as error:
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
            remedy = f"let it go on: kill -CONT {pid}"
        yield Finding(
            severity=ERROR,
            code="ServiceNotReady",
            subject=subject,
            message=detail,
            remedy=remedy,
        )
    for line in row.get("refused", ()):
        yield Finding(
            severity=WARNING,
            code="ObjectRefused",
            subject=subject,
            message=line,
            remedy="correct or delete the object; the service goes on without it",
        )


def _is_stopped(pid: int) -> bool:
    """Whether somebody stopped a process of this machine; where that cannot be seen, no."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[:1] == ["T"]


_Examined = tuple[Folded, list[Finding], Drift]
"""The log folded, what stands out, and where it differs from the API server."""


async def _examine(origin: Origin, at: str | None, fix: bool, answers: _Answers) -> _Examined:
    """The log folded, and what stands out in it, about its stream, and beside the API server."""
    async with open_source(origin) as source:
        drift = Drift()
        if origin.file is None and at is None:
            drift = await _drift(origin, source, fix, answers)
        earlier = _Earlier(source.now_ms() - IDLE_AFTER_S * 1000)
        folded = await fold_at(source, at, foreseer=earlier.foresee if at is None else None)
        with waiting("looking at pods, nodes and cards"):
            found = [*findings(folded.state, folded.time_ms), *drift.found, *drift.unguarded]
        found += await _standstill(source, folded, earlier)
        if at is None:
            found += await _of_nats(source, folded.time_ms)
        return folded, await _dated(source, folded, found), drift


async def _of_nats(source: logs.Source, now_ms: int) -> list[Finding]:
    """What stands out about the log's stream, and about who is active."""
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
        note("which replicas are active is not known: this key may not read the leases")
        return found
    return [*found, *of_leases(asked["active"])]


async def _drift(origin: Origin, source: logs.Source, fix: bool, answers: _Answers) -> Drift:
    """Compare with the API server, where it is known which one."""
    chosen = chosen_cluster()
    if origin.nats and chosen is None:
        note("the log is not compared with an API server: name one with --kubeconfig or --context")
        return Drift()
    access = Access(origin.home, *(chosen or ()))
    try:
        if chosen is None:  # KUBECONFIG may be about another cluster than local mode's log is
            access = access._replace(kubeconfig=local.addresses(origin.home).kubeconfig)
            if why := await answers.silent(_API_SERVER):
                raise CliError(why)
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
    except CliError as error:
        if chosen is not None or fix:
            raise
        note(f"the log is not compared with the API server: {error.message}")
        return Drift()


async def _unguarded(cluster: Cluster) -> list[Finding]:
    """Whether everybody may write which devices a pod holds."""
    base = "/apis/admissionregistration.k8s.io/v1"
    name, what = reserved.POLICY, f"admission policy {reserved.POLICY}"
    try:
        policy = await cluster.find(f"{base}/validatingadmissionpolicies/{name}", what, ObjectName)
        binding = await cluster.find(
            f"{base}/validatingadmissionpolicybindings/{name}", what, _PolicyBinding
        )
    except CliError as error:
        note(f"whether annotations are guarded is not known: {error.message}")
        return []
    is_there = policy is not None and binding is not None
    if is_there and binding is not None and "Deny" in binding.spec.validation_actions:
        return []
    return [
        Finding(
            severity=WARNING,
            code="AssignmentsUnguarded",
            subject=f"admission policy {name}",
            message=f"the API server {'does not refuse by' if is_there else 'has not'} it: whoever "
            "may create or edit a pod can write the annotations by which device plugins hand out "
            "cards, and so take others' cards",
            remedy="kubectl apply -f deploy/base/annotation-policy.yaml -f "
            "deploy/base/annotation-writers.yaml (Kubernetes 1.30 or later; see that the accounts "
            "of your device plugins are in the second)",
        )
    ]


async def _differences(source: logs.Source, cluster: Cluster) -> list[Finding]:
    """What differs at this moment. What is asked last is newest: the log."""
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
    """Of differences those that are still there after a fact had time to be recorded."""
    if not found:
        return []
    with waiting("the log and the API server differ; looking again"):
        await anyio.sleep(SETTLES_S)
    now = {_key(one) for one in await _differences(source, cluster)}
    return [one for one in found if _key(one) in now]


async def _until_right(
    source: logs.Source, cluster: Cluster, found: list[Finding]
) -> list[Finding]:
    """What is left of the differences when the watcher had time to list."""
    wanted = {_key(one) for one in found}
    left = found
    with anyio.move_on_after(CORRECTED_WITHIN_S):
        while left:
            with waiting("waiting for the watcher to record what is so"):
                await anyio.sleep(SETTLES_S / 2)
            left = [one for one in await _differences(source, cluster) if _key(one) in wanted]
    return left


def _key(finding: Finding) -> tuple[str, str]:
    return finding.code, finding.subject


class _Earlier:
    """The state at an earlier moment, kept on the way there, so that the log need not be read a
    second time; only while there is something to do.
    """

    def __init__(self, ms: int) -> None:
        self._until_ns = (ms + 1) * 1_000_000
        self._image = b""
        self._is_past = False

    def foresee(self, record: Record, state: ClusterState) -> None:
        """Before a record takes effect."""
        if not self._is_past and record.time_ns >= self._until_ns:
            self._is_past = True
            if state.seq and (state.pending or state.reserved):
                self._image = snapshot.encode(state)

    async def state(self, source: logs.Source, time_ms: int) -> ClusterState:
        """The state at that moment; the log is read again if it was not passed on the way."""
        if self._image and (time_ms + 1) * 1_000_000 == self._until_ns:
            return snapshot.decode(self._image)
        return (await fold(source, AtTime(time_ms), None)).state


async def _standstill(source: logs.Source, folded: Folded, earlier: _Earlier) -> list[Finding]:
    """What has been left undone."""
    state, time_ms = folded.state, folded.time_ms
    decided_seq, decided_ms = await _last_decided(source, state.decision_seq)
    is_silent = bool(state.pending) and time_ms - decided_ms > IDLE_AFTER_S * 1000
    with waiting("trying what could be decided"):
        now = work_of(state, is_silent=is_silent)
    if not now:
        return []
    state_then = await earlier.state(source, time_ms - IDLE_AFTER_S * 1000)
    with waiting("trying what could be decided then"):
        before = work_of(state_then, is_silent=is_silent)
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


async def _dated(source: logs.Source, folded: Folded, found: list[Finding]) -> list[Finding]:
    """Findings about nodes that are gone, with when they went."""
    gone = {one.subject.removeprefix("node ") for one in found if one.code == "NodeGone"}
    if not gone:
        return found
    when = await _last_gone(source, gone, folded.seq)
    return [
        msgspec.structs.replace(one, seq=when[name][0], since=rfc3339(when[name][1]))
        if one.code == "NodeGone" and (name := one.subject.removeprefix("node ")) in when
        else one
        for one in found
    ]


async def _last_gone(
    source: logs.Source, names: Iterable[str], last_seq: int
) -> dict[str, tuple[int, int]]:
    """Of nodes that are gone the record that says so, and its time; the newest part of the log is
    looked at, from its end.
    """
    wanted, found = set(names), dict[str, tuple[int, int]]()
    end = last_seq
    while wanted and end > max(0, last_seq - LOOK_BACK_RECORDS):
        first = max(1, end - CHUNK_RECORDS + 1)
        async with aclosing(source.read(first, end)) as batches:
            async for batch in batches:
                for record in batch:
                    if b"NodeGone" not in record.payload:
                        continue
                    try:
                        events = decode_envelope(record.payload, record.subject).events
                    except UndecodableError:
                        continue
                    for event in events:
                        if isinstance(event, NodeGone) and event.name in wanted:
                            found[event.name] = record.seq, record.time_ns // 1_000_000
        wanted -= found.keys()
        end = first - 1
    return found


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


def _lines(
    read: Sequence[Source],
    found: Sequence[Finding],
    unreadable: Sequence[Unreadable],
    now_ms: int | None,
    width: int | None = None,
) -> list[str]:
    lines: list[str] = [
        Prose(f"{one.kind} configuration: {one.source}" + (f" (seq {one.seq})" * bool(one.seq)), 4)
        for one in read
    ]
    for one in found:
        seq = f" (seq {one.seq})" if one.seq else ""
        lines.append(
            heading(Prose(f"{one.severity:<8}{one.code}   {one.subject}{seq}", len(INDENT)))
        )
        lines += _indented(one.message, width)
        if one.since and now_ms is not None:
            lines.append(f"{INDENT}since {_since_text(one.since, now_ms)}")
        lines += _indented(one.remedy, width)
    lines += [
        f"error   log: record {record.seq} ({record.subject}) cannot be read: {record.reason}"
        for record in unreadable
    ]
    never = sum(one.never_start for one in found)
    if never:
        lines.append(
            f"{_counted(never, 'pod')} cannot start as {'it is' if never == 1 else 'they are'}"
        )
    errors = sum(one.severity == ERROR for one in found) + len(unreadable)
    warnings = len(found) + len(unreadable) - errors
    summary = f"{_counted(errors, 'error')}, {_counted(warnings, 'warning')}"
    return [*lines, summary if found or unreadable else "no problems found"]


def _corrected_lines(corrected: Sequence[Finding]) -> list[str]:
    return [
        f"corrected {one.code}   {one.subject}: the log says what is so now" for one in corrected
    ]


def _indented(text: str, width: int | None) -> list[str]:
    """A text below its heading, broken at spaces where the lines have a width."""
    if width is None:
        return [INDENT + text]
    return textwrap.wrap(
        text,
        max(width, 40),
        initial_indent=INDENT,
        subsequent_indent=INDENT,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _since_text(since: str, now_ms: int) -> str:
    """A moment as a person reads it, and how long ago it was."""
    at_ms = int(datetime.fromisoformat(since).timestamp() * 1000)
    return f"{moments.moment_text(at_ms)} ({age_text(max(now_ms - at_ms, 0) // 1000)})"


def _counted(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"
