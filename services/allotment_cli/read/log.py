"""`allot log`: the allocation log, one line an event; whole, or one object's story."""

from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import anyio
import click
import msgspec

from allotment.adapters.log import exported
from allotment.adapters.service.moments import At, AtSequence, AtTime, moment_text
from allotment.answers import moments
from allotment.answers.folding import Folded, end_of, fold
from allotment.answers.pods import records_about
from allotment.answers.source import Origin, Source
from allotment.core.errors import AllotError
from allotment.core.explain.history import concerned, story
from allotment.core.explain.history.records import Effects, LogLine, Wanted, stood_on
from allotment.core.logport import Record
from allotment.core.units import QuantityError, bytes_text, rfc3339, whole_up
from allotment_cli.options import completion
from allotment_cli.options.names import pod_name
from allotment_cli.options.params import at_option, namespace_option, output_option
from allotment_cli.options.source import archive_option, open_as_admin, open_source, source_options
from allotment_cli.read import archives
from allotment_cli.show.output import DOCUMENTS, emit, emit_document, json_text, note, suggest
from allotment_proto.codec import UndecodableError, decode_envelope
from allotment_proto.events import Decided, Envelope
from allotment_proto.registry import KINDS
from allotment_proto.subjects import CHECKPOINT, CLOSE, RAISE, STREAM

if TYPE_CHECKING:
    from allotment.adapters.log.backup import Saved
    from allotment.adapters.log.connection import Connection

CLOSE_WITHIN_S = 60
CLOSE_ASKED_EVERY_S = 0.5
RAISED_WITHIN_S = 3.0
EVENT_TYPES = tuple(kind.struct.__name__ for kind in KINDS)
TYPE_WIDTH = max(map(len, EVENT_TYPES))


class ShownRecord(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One record whole. Without `record` it is unreadable, and `payload` is what is stored."""

    seq: int
    subject: str
    time: str
    time_ms: int
    id: str
    stood_on: tuple[str, ...] = ()
    led_to: tuple[str, ...] = ()
    record: Envelope | None = None
    unreadable: str = ""
    payload: str = ""


class Asked(NamedTuple):
    """What to show: `lines` follows one object, `since` hides records."""

    lines: Wanted
    since: At | None

    def reaches(self, record: Record) -> bool:
        if self.since is None:
            return True
        if isinstance(self.since, AtSequence):
            return record.seq >= self.since.seq
        return record.time_ns >= self.since.ms * 1_000_000


@click.group(invoke_without_command=True)
@source_options
@click.option(
    "--pod",
    metavar="[NS/]NAME",
    shell_complete=completion.pods,
    help="Only what concerns this pod.",
)
@namespace_option
@click.option(
    "--gang",
    metavar="[NS/]NAME",
    shell_complete=completion.groups,
    help="Only what concerns this group and its pods.",
)
@click.option("--node", shell_complete=completion.nodes, help="Only what concerns this node.")
@click.option(
    "--card",
    metavar="NODE/INDEX",
    shell_complete=completion.card_indexes,
    help="Only what concerns this card.",
)
@click.option(
    "--type",
    "types",
    multiple=True,
    metavar="TYPE",
    shell_complete=completion.words(*EVENT_TYPES),
    help=f"{', '.join(EVENT_TYPES)}.",
)
@click.option("--since", metavar="MOMENT", help="Sequence, 14:03, -15m or RFC 3339.")
@at_option
@click.option(
    "-f", "-w", "--follow", "--watch", is_flag=True, help="Wait for new events and show them."
)
@output_option(*DOCUMENTS, "jsonl")
@click.pass_context
def log(
    ctx: click.Context,
    origin: Origin,
    pod: str | None,
    namespace: str | None,
    gang: str | None,
    node: str | None,
    card: str | None,
    types: tuple[str, ...],
    since: str | None,
    at: str | None,
    follow: bool,
    output: str,
) -> None:
    """Show the allocation log, one line per event. -o jsonl exports whole records for --file."""
    ctx.obj = origin
    if ctx.invoked_subcommand is not None:
        return
    if follow and output in DOCUMENTS:
        raise AllotError(
            f"-o {output} is one document and cannot follow", "use -o jsonl with --follow"
        )
    if follow and origin.file is not None:
        raise AllotError(
            "--follow needs a live log, and --file names an exported one", "leave out --file"
        )
    if follow and at is not None:
        raise AllotError("--follow waits for what is new, and --at ends the log", "leave out one")
    if namespace is not None and pod is None:
        raise AllotError(
            "-n is the namespace of --pod, and no pod is named",
            f"give --pod NAME, or see its pods: allot get pods -n {namespace}",
        )
    subject = _subject(pod, namespace, gang, node, card)
    try:
        anyio.run(_show, ctx.obj, subject, tuple(map(_type, types)), since, at, follow, output)
    except KeyboardInterrupt:
        note("stopped")


@log.command()
@click.argument("seq", type=click.IntRange(min=1))
@output_option(*DOCUMENTS)
@click.pass_obj
def show(origin: Origin, seq: int, output: str) -> None:
    """Show one record as it is stored, the state it was decided on and its outcome."""
    shown = anyio.run(_show_one, origin, seq)
    if output in DOCUMENTS:
        emit_document(shown, output)
    else:
        emit(_shown_lines(shown))


@log.command()
@click.argument("directory", type=click.Path(path_type=Path))
@click.pass_obj
def backup(origin: Origin, directory: Path) -> None:
    """Save the whole log into a new directory, with the administrator's key.

    What `nats stream backup` writes, and `nats stream restore` reads, too.
    """
    saved = anyio.run(_backup, origin, directory)
    emit([f"{directory}: records 1 to {saved.last_seq}, {bytes_text(saved.bytes)}"])


log.add_command(archives.archive)
log.add_command(archives.verify)


@log.command()
@click.argument(
    "directory",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    required=False,
)
@archive_option
@click.option(
    "--segments",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="With --archive: so many of its newest segments. Older ones are read from there.",
)
@click.option(
    "--replicas", type=click.IntRange(1, 5), default=1, show_default=True, help="Copies to keep."
)
@click.pass_obj
def restore(origin: Origin, directory: Path | None, segments: int, replicas: int) -> None:
    """Make the log again where NATS has none, with the administrator's key.

    From the DIRECTORY of a backup, with every record's time, or from an --archive. Every record
    keeps its sequence. The services accept it if it has the last record that they know.
    """
    if directory is None:
        emit([anyio.run(archives.restored, origin, segments, replicas)])
        return
    saved = anyio.run(_restore, origin, directory, replicas)
    emit([f"restored: records 1 to {saved.last_seq}, {replicas} copies"])


@log.command()
@click.argument("size", metavar="SIZE")
@click.pass_obj
def limit(origin: Origin, size: str) -> None:
    """Set the most that the log may take on a server's disk, with the administrator's key.

    SIZE is like 20Gi; it must leave room on the volume. NATS refuses more than its max_file_store.
    """
    try:
        amount = whole_up(size)
    except QuantityError as error:
        raise AllotError(str(error), "write bytes, like 20Gi") from error
    emit([anyio.run(_limit, origin, amount)])


@log.command()
@click.pass_obj
def close(origin: Origin) -> None:
    """Close the open segment of the log now, with a checkpoint, with the administrator's key.

    The binder does so by itself at a size and at an age.
    """
    emit([anyio.run(_close, origin)])


@log.command("raise")
@click.pass_obj
def raise_level(origin: Origin) -> None:
    """Let records be of the newest level that the binder's release knows.

    Do so once every service runs that release: older ones stop, and cannot be started again.
    """
    emit([anyio.run(_raise, origin)])


async def _raise(origin: Origin) -> str:
    async with open_source(origin) as source:
        before = (await fold(source, None)).state.segments.level
        async with _administering(origin) as connection:
            await connection.send(RAISE, b"")
        await anyio.sleep(RAISED_WITHIN_S)
        level = (await fold(source, None)).state.segments.level
    if level > before:
        return f"records may be of level {level} from here on"
    return f"the level is still {level}: the active binder knows no newer one, or none is active"


async def _close(origin: Origin) -> str:
    from allotment.adapters.log.jetstream import JetStream

    async with _administering(origin) as connection:
        jetstream = JetStream(connection)
        before = await jetstream.last_on_subject(STREAM, CHECKPOINT)
        with anyio.move_on_after(CLOSE_WITHIN_S):
            while True:
                await connection.send(CLOSE, b"")
                await anyio.sleep(CLOSE_ASKED_EVERY_S)
                record = await jetstream.last_on_subject(STREAM, CHECKPOINT)
                if record is not None and (before is None or record.seq > before.seq):
                    (closed,) = decode_envelope(record.payload, record.subject).events
                    return story.line(closed)
        raise AllotError(
            f"no segment was closed within {CLOSE_WITHIN_S} s",
            "is a binder active (allot status), and was none closed in the last ten seconds?",
        )


async def _backup(origin: Origin, directory: Path) -> "Saved":
    from allotment.adapters.log.backup import save

    async with _administering(origin) as connection:
        return await save(connection, STREAM, directory)


async def _restore(origin: Origin, directory: Path, replicas: int) -> "Saved":
    from allotment.adapters.log.backup import restore

    async with _administering(origin) as connection:
        return await restore(connection, STREAM, directory, replicas=replicas)


async def _limit(origin: Origin, size_bytes: int) -> str:
    from allotment.adapters.log.jetstream import JetStream

    async with _administering(origin) as connection:
        jetstream = JetStream(connection)
        info = await jetstream.stream_info(STREAM)
        if info is None:
            raise AllotError(f"NATS has no stream {STREAM}")
        taken = int(info["state"]["bytes"])
        if size_bytes <= taken:
            raise AllotError(f"the log takes {bytes_text(taken)} already", "give a larger size")
        config = {**info["config"], "max_bytes": size_bytes}
        await jetstream.request(f"STREAM.UPDATE.{STREAM}", config)
        return f"the log may take {bytes_text(size_bytes)}; it takes {bytes_text(taken)}"


@asynccontextmanager
async def _administering(origin: Origin) -> AsyncIterator["Connection"]:
    """A connection as administrator; what NATS refuses is said in its own words."""
    from allotment.adapters.log.backup import BackupError
    from allotment.adapters.log.jetstream import ApiError

    try:
        async with open_as_admin(origin) as connection:
            yield connection
    except ApiError as error:
        raise AllotError(f"NATS refuses: {error}") from error
    except (BackupError, OSError) as error:
        raise AllotError(str(error)) from error


def _subject(
    pod: str | None,
    namespace: str | None,
    gang: str | None,
    node: str | None,
    card: str | None,
) -> concerned.Subject:
    if sum(given is not None for given in (pod, gang, node, card)) > 1:
        raise AllotError("--pod, --gang, --node and --card exclude each other", "give one of them")
    if pod is not None:
        return concerned.PodSubject(*pod_name(pod, "pod", namespace))
    if gang is not None:
        return concerned.GroupSubject(*pod_name(gang, "group", namespace))
    if node is not None:
        return concerned.NodeSubject(node)
    if card is not None:
        name, _, index = card.rpartition("/")
        if not name or not index:
            raise AllotError(f"--card {card!r} is not a card", "give NODE/INDEX like gpu-07/3")
        card = index.removeprefix("GPU-") if index[4:].isdigit() else index
        return concerned.NodeSubject(name, card)
    return concerned.Everything()


def _type(text: str) -> str:
    for name in EVENT_TYPES:
        if name.lower() == text.lower():
            return name
    raise AllotError(f"--type {text!r} is not a type of event", f"one of {', '.join(EVENT_TYPES)}")


async def _show(
    origin: Origin,
    subject: concerned.Subject,
    types: tuple[str, ...],
    since: str | None,
    at: str | None,
    follow: bool,
    output: str,
) -> None:
    async with open_source(origin) as source:
        now_ms = source.now_ms()
        begin = None if since is None else moments.parse(since, now_ms, "--since")
        wanted = Asked(Wanted(subject, types, story.Claims()), begin)
        collected: list[LogLine] = []
        shown = 0
        end = await end_of(source, None if at is None else moments.parse(at, now_ms))
        last_seq = end.last_seq
        async with aclosing(_batches(source, wanted, last_seq, follow=follow)) as batches:
            async for batch in batches:
                for record in batch:
                    if end.until_ns is not None and record.time_ns >= end.until_ns:
                        last_seq = min(last_seq, record.seq - 1)
                        break
                    shown += _one(record, wanted, output, collected)
        if output in DOCUMENTS:
            emit_document(collected, output)
        elif not shown and not follow:
            note(f"nothing of that kind in the log up to seq {last_seq}")
        elif output == "text" and isinstance(subject, concerned.PodSubject) and not follow:
            suggest(f"allot explain pod {subject.namespace}/{subject.name}")


async def _batches(
    source: Source, wanted: Asked, last_seq: int, *, follow: bool
) -> AsyncGenerator[list[Record]]:
    """The records in which the subject may occur, from those on that are wanted or before."""
    found = await records_about(source, wanted.lines.subject, last_seq)
    if found is not None:
        yield found
        if not follow:
            return
        first_seq = last_seq + 1
    else:
        first_seq = await _first_seq(source, wanted, last_seq)
    batches = source.follow(first_seq - 1) if follow else source.read(first_seq, last_seq)
    async with aclosing(batches):
        async for batch in batches:
            yield batch


async def _first_seq(source: Source, wanted: Asked, last_seq: int) -> int:
    """The record to begin with: the first that is wanted, where the state before it says what was
    booked then, or else the first that can be read.
    """
    before: Folded | None = None
    try:
        match wanted.since:
            case AtSequence(seq=seq) if seq > 1:
                before = await fold(source, AtSequence(min(seq - 1, last_seq)))
            case AtTime(ms=ms):
                before = await fold(source, AtTime(ms - 1))
            case _:
                pass
    except AllotError:  # the log begins later, or its archive is away: said below
        pass
    if before is not None and before.seq:
        wanted.lines.claims.begin(before.state)
        return before.seq + 1
    try:
        return await source.first_seq()
    except AllotError as error:
        first_seq = await source.near_seq()
        note(f"shown from record {first_seq} on: {error.message}")
        return first_seq


def _one(record: Record, wanted: Asked, output: str, collected: list[LogLine]) -> int:
    """How many lines of the record there were to show."""
    lines = _lines(record, wanted)
    if not lines:
        return 0
    if output == "jsonl":
        emit([exported.encode(record)])
    elif output in DOCUMENTS:
        collected += lines
    else:
        time = moment_text(record.time_ns // 1_000_000)
        emit(f"{x.seq:>7}  {time}  {x.type:<{TYPE_WIDTH}}  {x.text}" for x in lines)
    return len(lines)


def _lines(record: Record, wanted: Asked) -> list[LogLine]:
    time_ms, shown = record.time_ns // 1_000_000, wanted.reaches(record)
    try:
        envelope = decode_envelope(record.payload, record.subject)
    except UndecodableError as error:
        return wanted.lines.unreadable(record.seq, time_ms, error.reason) if shown else []
    return wanted.lines.lines(record.seq, time_ms, record.subject, envelope, shown=shown)


async def _show_one(origin: Origin, seq: int) -> ShownRecord:
    async with open_source(origin) as source:
        last_seq = await source.last_seq()
        if seq > last_seq:
            raise AllotError(f"sequence {seq} is not in the log yet", f"the last is {last_seq}")
        record = await _record(source, seq)
        shown = ShownRecord(
            seq=record.seq,
            subject=record.subject,
            time=rfc3339(record.time_ns // 1_000_000),
            time_ms=record.time_ns // 1_000_000,
            id=record.msg_id or "",
        )
        try:
            envelope = decode_envelope(record.payload, record.subject)
        except UndecodableError as error:
            return msgspec.structs.replace(
                shown,
                unreadable=error.reason,
                payload=record.payload.decode(errors="backslashreplace"),
            )
        return msgspec.structs.replace(
            shown,
            stood_on=tuple(stood_on(envelope)),
            led_to=tuple([text async for text in _effects(source, envelope, seq, last_seq)]),
            record=envelope,
        )


def _shown_lines(shown: ShownRecord) -> Iterator[str]:
    yield f"Sequence  {shown.seq}"
    yield f"Subject   {shown.subject}"
    yield f"Time      {moment_text(shown.time_ms)}"
    yield f"Id        {shown.id or '-'}"
    if shown.record is None:
        yield f"Unreadable  {shown.unreadable}"
        yield shown.payload
        return
    if not shown.record.events:
        yield f"Says      {story.of_no_event(shown.subject, shown.record.by)[1]}"
    yield from (f"Stood on  {text}" for text in shown.stood_on)
    yield from (f"Led to    {text}" for text in shown.led_to)
    yield from json_text(shown.record).split("\n")


async def _record(source: Source, seq: int) -> Record:
    async with aclosing(source.read(seq, seq)) as batches:
        async for batch in batches:
            return batch[0]
    raise AllotError(f"sequence {seq} is missing from the log", "the log is damaged")


async def _effects(
    source: Source, envelope: Envelope, seq: int, last_seq: int
) -> AsyncIterator[str]:
    """What a decision led to, as lines."""
    decided = [event for event in envelope.events if isinstance(event, Decided)]
    if not decided:
        return
    effects = Effects(seq, decided)
    pods = {t for event in decided for t in concerned.concerned(event) if t[0] == concerned.POD}
    seqs = chain.from_iterable((await source.kept.about(pods, last_seq)).values())
    for record in await source.kept.records(each for each in seqs if each > seq):
        later = decode_envelope(record.payload, record.subject)
        for effect in effects.of(record.seq, later):
            yield f"seq {effect.seq}: {effect.text}"
