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
from allotment_cli.options.source import archive_option, chosen_archive, open_as_admin, open_source
from allotment_cli.show.output import DOCUMENTS, emit, emit_document

if TYPE_CHECKING:
    from allotment.adapters.archive.store import Stored
    from allotment.adapters.archive.verify import LiveCheck, Verified

PROBLEMS = 1


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
    """What was verified. `live_first_seq` to `live_last_seq` were read from NATS, 0 if none."""

    archive: str
    segments: tuple[Segment, ...]
    live_first_seq: int
    live_last_seq: int
    live_decisions: int
    chain: str
    problems: tuple[Problem, ...]


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
        return await _proof(url, None, folds)
    async with open_source(origin) as source:
        return await _proof(chosen_archive() or await source.archive_url(), source, folds)


async def _proof(url: str | None, source: Source | None, folds: bool) -> Proof:
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
        check, found = await _live(source, folds)
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
    return Proof(url or "", segments, first, last, decisions, head, tuple(problems))


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


async def _live(source: Source, folds: bool) -> tuple["LiveCheck", list[Problem]]:
    from allotment.adapters.archive.file import SegmentBroken
    from allotment.adapters.archive.verify import LiveCheck

    first_seq, last_seq = await source.near_seq(), await source.last_seq()
    begins = await source.checkpoint(first_seq)
    check = LiveCheck("the log in NATS", first_seq, begins, folds=folds)
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
