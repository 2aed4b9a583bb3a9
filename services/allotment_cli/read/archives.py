"""`allot log archive` and `verify`: copy what is closed, and prove what is kept."""

import os
import socket
import sys
from collections.abc import Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread
import click
import msgspec

from allotment.answers.source import Origin, Source
from allotment.core.errors import AllotError
from allotment.core.units import bytes_text
from allotment_cli.options.params import output_option
from allotment_cli.options.source import (
    archive_option,
    chosen_archive,
    chosen_cluster,
    named,
    open_as_admin,
    open_cluster,
    open_source,
)
from allotment_cli.show.output import DOCUMENTS, emit, emit_document, note
from allotment_proto.codec import UNREADABLE

if TYPE_CHECKING:
    from allotment.adapters.archive.store import Stored
    from allotment.adapters.archive.verify import LiveCheck, Verified

PROBLEMS = 1
_NAME = "allotment-log"
"""Of the ConfigMap in which the watcher keeps how far it knows the log."""


class _ConfigMap(msgspec.Struct):
    data: dict[str, str] | None = None


class Segment(msgspec.Struct, frozen=True, rename="camel"):
    """An archived segment that is sound."""

    number: int
    first_seq: int
    last_seq: int
    bytes: int
    decisions: int
    chain: str


class Problem(msgspec.Struct, frozen=True, rename="camel"):
    """What is wrong, and with the first record of what (0: not known)."""

    text: str
    first_seq: int


class Proof(msgspec.Struct, frozen=True, rename="camel"):
    """What was verified. `live_first_seq` to `live_last_seq` were read from NATS, 0 if none.
    `known_in` is the ConfigMap that names a head of this log, at `known_seq`; "" and 0 if it was
    not compared with any.
    """

    archive: str
    segments: tuple[Segment, ...]
    live_first_seq: int
    live_last_seq: int
    live_decisions: int
    chain: str
    known_in: str
    known_seq: int
    problems: tuple[Problem, ...]


class Known(msgspec.Struct, frozen=True):
    """What a cluster knows of its log: the ConfigMap's name, and a head that it names."""

    name: str
    seq: int
    chain: str


@click.command()
@archive_option
@click.option(
    "--drop/--no-drop", default=False, help="Let archived segments leave NATS, all but two."
)
@click.pass_obj
def archive(origin: Origin, drop: bool) -> None:
    """Archive the closed segments of the log now, with the administrator's key.

    What the archiver does all the time. Without --archive they go where the log's others are.
    """
    emit([anyio.run(_archive, origin, drop)])


@click.command()
@archive_option
@click.option("--live/--no-live", default=True, help="Verify the records in NATS, too.")
@click.option("--fold/--no-fold", default=True, help="Fold each segment to the recorded state.")
@output_option(*DOCUMENTS)
@click.pass_context
def verify(ctx: click.Context, live: bool, fold: bool, output: str) -> None:
    """Verify the log and its archive: every byte, the chain, and the state at each segment's end.

    The cluster of the log keeps a head of the chain in the ConfigMap allotment-log; it must be in
    this log. With --no-live it is compared if --context or --kubeconfig names a cluster.

    Exit codes: 0 sound, 1 problems found, 2 could not run. docs/log.md says what this proves.
    """
    proof = anyio.run(_verify, ctx.obj, live, fold)
    if output in DOCUMENTS:
        emit_document(proof, output)
    else:
        emit(_lines(proof))
    if proof.problems:
        ctx.exit(PROBLEMS)


def _lines(proof: Proof) -> list[str]:
    lines = [f"archive {proof.archive}"] if proof.archive else []
    lines += [
        f"  segment {one.number}: records {one.first_seq} to {one.last_seq},"
        f" {bytes_text(one.bytes)}, {one.decisions} decisions name the chain: sound"
        for one in proof.segments
    ]
    if proof.live_last_seq:
        lines.append(
            f"NATS: records {proof.live_first_seq} to {proof.live_last_seq},"
            f" {proof.live_decisions} decisions name the chain"
        )
    if proof.known_in:
        lines.append(f"{proof.known_in}: its head at record {proof.known_seq} is in this log")
    lines += [f"PROBLEM: {one.text}" for one in proof.problems]
    if not proof.problems:
        lines.append(f"sound; the chain's head is {proof.chain}")
    return lines


async def _archive(origin: Origin, drop: bool) -> str:
    from allotment.adapters.archive.store import Store
    from allotment.adapters.archive.whole import WholeLog
    from allotment.adapters.log.jetstream import JetStream
    from allotment.adapters.log.log import JetStreamLog
    from allotment.adapters.telemetry.log import Logger, LogSink
    from allotment_archiver.archiving import TROUBLES, Archiver
    from allotment_archiver.settings import Keeps

    async with open_as_admin(origin) as connection:
        log = await JetStreamLog.to_read(JetStream(connection))
        if log is None:
            raise AllotError("NATS has no log", "is this the right server?")
        url = chosen_archive() or await WholeLog(log).archive_url()
        if url is None:
            raise AllotError("the log names no archive", "give --archive URL")
        by = f"allot/{socket.gethostname()}-{os.getpid()}"
        logger = Logger(LogSink("allot", by, "text", "warning", sys.stderr))
        one = Archiver(log, Store(url, makes=True), Keeps(drops=drop), by, logger)
        try:
            await one.run()
        except TROUBLES as error:
            raise AllotError(str(error)) from error
        return (
            f"{url}: {one.archived} segments archived, {one.dropped} left NATS; it has"
            f" {len(one.segments.live)} closed ones"
        )


async def _verify(origin: Origin, live: bool, folds: bool) -> Proof:
    if not live:
        url = chosen_archive()
        if url is None:
            raise AllotError("--no-live verifies an archive alone", "name it: --archive URL")
        known = None if chosen_cluster() is None else await _known(origin)
        return await _proof(url, None, known, folds)
    known = await _known(origin)  # before the log is read: it does not name what comes later
    async with open_source(origin) as source:
        return await _proof(chosen_archive() or await source.archive_url(), source, known, folds)


async def _known(origin: Origin) -> Known | None:
    """The head that the cluster of the log keeps; None where there is none, which is said."""
    from allotment.adapters.kube.kept_text import KEY
    from allotment.adapters.log.nats_users import NAMESPACE
    from allotment.adapters.service.identity import Identity
    from allotment.answers.cluster import access_of

    why, access = access_of(named(origin))
    name = f"ConfigMap {NAMESPACE}/{_NAME}"  # one in another namespace may be a tenant's
    try:
        if access is None:
            raise AllotError(why)
        async with open_cluster(access) as cluster:
            path = f"/api/v1/namespaces/{NAMESPACE}/configmaps/{_NAME}"
            found = await cluster.find(path, name, _ConfigMap)
        if found is None:
            raise AllotError(f"the cluster has no {name}")
        try:
            identity = msgspec.json.decode((found.data or {}).get(KEY, ""), type=Identity)
        except UNREADABLE as error:
            raise AllotError(f"{name} cannot be read: {error}") from error
        if not identity.chain:
            raise AllotError(f"{name} names no head of the chain yet")
    except AllotError as error:
        note(f"no head that a cluster keeps is compared: {error.message}")
        return None
    return Known(name, identity.seq, identity.chain)


async def _proof(url: str | None, source: Source | None, known: Known | None, folds: bool) -> Proof:
    from allotment.adapters.archive.store import ArchiveUnreachable, Store, Stored
    from allotment.adapters.archive.verify import gaps, seams

    stored: Sequence[Stored] = []
    if url is not None:
        try:
            stored = await anyio.to_thread.run_sync(Store(url).list)
        except ArchiveUnreachable as error:
            raise AllotError(str(error), "name a copy: --archive URL (or ALLOT_ARCHIVE)") from error
    problems = [Problem(one.text, one.first_seq) for one in gaps(stored)]
    sound: list[Verified] = []
    for one in stored:
        problems += await _file(url or "", one, folds, sound)
    headers = [one.header for one in sound]
    problems += [Problem(one.text, one.first_seq) for one in seams(headers)]
    copies = [copy for one in sound for copy in one.copies]
    first = last = decisions = 0
    head = headers[-1].chain if headers else ""
    if source is not None:
        check, found = await _live(source, known, folds)
        first, last = await source.near_seq(), check.last_seq
        decisions, head, problems = check.decisions, check.head, [*problems, *found]
        copies += check.copies
        problems += [
            Problem(
                f"{one.name} and NATS are of different histories: record {first} continues the"
                f" chain from {check.begins}",
                first,
            )
            for one in headers
            if one.last_seq == first - 1 and one.chain != check.begins
        ]
    shas = {copy.number: copy.sha256 for copy in copies}
    problems += [
        Problem(
            f"{one.header.name}: its SHA-256 is {one.sha256}, and the log names"
            f" {shas[one.header.number]}",
            0,
        )
        for one in sound
        if shas.get(one.header.number, one.sha256) != one.sha256
    ]
    noted = check.noted if source is not None else ""
    if known is not None and not problems:
        last_seq = last if source is not None else (stored[-1].last_seq if stored else 0)
        if not noted and known.seq <= last_seq:
            noted = await _archived_head(url or "", stored, known.seq)
        problems += _unknown(known, noted, last_seq, is_live=source is not None)
    segments = tuple(
        Segment(
            one.header.number,
            one.header.first_seq,
            one.header.last_seq,
            one.size_bytes,
            one.decisions,
            one.header.chain,
        )
        for one in sound
    )
    compared = known if known is not None and known.chain == noted else None
    return Proof(
        archive=url or "",
        segments=segments,
        live_first_seq=first,
        live_last_seq=last,
        live_decisions=decisions,
        chain=head,
        known_in=compared.name if compared else "",
        known_seq=compared.seq if compared else 0,
        problems=tuple(problems),
    )


def _unknown(known: Known, noted: str, last_seq: int, *, is_live: bool) -> list[Problem]:
    """What is wrong with a log that is sound, by a head that its cluster keeps; `noted` is the head
    there.
    """
    named = f"{known.name} names the head {known.chain} at record {known.seq}"
    if known.seq > last_seq:
        if not is_live:
            note(f"{named}; the archive ends with {last_seq}, so that is not compared")
            return []
        text = f"{named}, and this log ends at {last_seq}: its end is lost, or it is another log"
        return [Problem(text, last_seq + 1)]
    if not noted:
        note(f"{named}; that record is neither in NATS nor in the archive")
        return []
    if noted == known.chain:
        return []
    text = f"{named}, and this log has {noted} there: it was altered up to there, or is another log"
    return [Problem(text, 0)]


async def _archived_head(url: str, stored: "Sequence[Stored]", seq: int) -> str:
    """The chain's head at a record of files that are sound, "" where none has it."""
    from allotment.adapters.archive.store import Store
    from allotment.adapters.archive.verify import head_at

    found = [one for one in stored if one.first_seq <= seq <= one.last_seq]
    if not found:
        return ""
    file = Store(url).open(found[0].name, found[0].size_bytes)
    return await anyio.to_thread.run_sync(head_at, file, seq)


async def _file(url: str, stored: "Stored", folds: bool, sound: "list[Verified]") -> list[Problem]:
    """Verify one file; it is added to those that are sound, or its problem returned."""
    from allotment.adapters.archive.file import SegmentBroken
    from allotment.adapters.archive.store import ArchiveUnreachable
    from allotment.adapters.archive.verify import verify_stored

    try:
        sound.append(
            await anyio.to_thread.run_sync(lambda: verify_stored(url, stored, folds=folds))
        )
    except SegmentBroken as error:
        return [Problem(str(error), error.first_seq)]
    except ArchiveUnreachable as error:
        return [Problem(str(error), stored.first_seq)]
    return []


async def _live(
    source: Source, known: Known | None, folds: bool
) -> tuple["LiveCheck", list[Problem]]:
    from allotment.adapters.archive.file import SegmentBroken
    from allotment.adapters.archive.verify import LiveCheck

    first_seq, last_seq = await source.near_seq(), await source.last_seq()
    begins = await source.checkpoint(first_seq)
    noted_seq = known.seq if known else 0
    check = LiveCheck("the log in NATS", first_seq, begins, folds=folds, noted_seq=noted_seq)
    with source.screen.progress("verifying the log", last_seq - first_seq + 1) as advance:
        async with aclosing(source.read_live(first_seq, last_seq)) as batches:
            async for batch in batches:
                try:
                    for record in batch:
                        check.feed(record)
                except SegmentBroken as error:
                    return check, [Problem(str(error), error.first_seq)]
                advance(len(batch))
    return check, []


async def restored(origin: Origin, segments: int, replicas: int) -> str:
    """Restore the log from the archive that the options name; what NATS holds then."""
    from allotment.adapters.archive.archive import Archive
    from allotment.adapters.archive.file import SegmentBroken
    from allotment.adapters.archive.restore import restore
    from allotment.adapters.archive.store import ArchiveUnreachable
    from allotment.adapters.log.jetstream import ApiError
    from allotment.core.logport import LogUnavailable

    url = chosen_archive()
    if url is None:
        raise AllotError(
            "from what shall the log be restored?",
            "name the directory of a backup, or an archive: --archive URL",
        )
    try:
        archive = await Archive.open(url)
        async with open_as_admin(origin) as connection:
            made = await restore(connection, archive, segments=segments, replicas=replicas)
    except ApiError as error:
        raise AllotError(f"NATS refuses: {error}") from error
    except LogUnavailable as error:
        raise AllotError(f"the log is not whole yet: {error}", "run the same again") from error
    except (ArchiveUnreachable, SegmentBroken) as error:
        raise AllotError(str(error)) from error
    return (
        f"restored: records {made.first_seq} to {made.last_seq}, {replicas} copies; the chain's"
        f" head is {made.head}"
    )
