"""The log as NATS itself saves it: every record with its sequence and time, restored as it was.

A directory holds what `nats stream backup` writes: `backup.json` (configuration and state) and
`stream.tar.s2`, which only a nats-server reads. Either tool restores what the other saved. The
SHA-256 in `backup.json` is ours.
"""

import hashlib
import os
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import msgspec
from nats.aio.msg import Msg

from allotment.adapters.log.connection import Connection
from allotment.adapters.log.jetstream import JetStream

CHUNK_BYTES = 128 * 1024
ANSWER_S = 30.0
DESCRIPTION, CONTENT = "backup.json", "stream.tar.s2"
SHA256 = "sha256"


class BackupError(Exception):
    """A backup could not be made, read or restored; the text says where and why."""


class Saved(msgspec.Struct, frozen=True):
    """What a backup holds."""

    last_seq: int
    bytes: int


async def save(connection: Connection, stream: str, directory: Path) -> Saved:
    """Write the stream as it is now into a new directory. Raises BackupError, ApiError, OSError."""
    await anyio.Path(directory).mkdir(mode=0o700, parents=True)
    wake, end = anyio.Event(), anyio.Event()
    digest = hashlib.sha256()
    content = directory / CONTENT
    async with await anyio.open_file(content, "xb") as file:

        async def take(message: Msg) -> None:
            nonlocal wake
            if message.data:
                digest.update(message.data)
                await file.write(message.data)
                if message.reply:
                    await connection.send(message.reply, b"")
            else:
                end.set()
            wake.set()
            wake = anyio.Event()

        inbox = connection.new_inbox_subject()
        chunks = await connection.client.subscribe(inbox, cb=take, pending_bytes_limit=0)
        try:
            info = await JetStream(connection).request(
                f"STREAM.SNAPSHOT.{stream}",
                {
                    "deliver_subject": inbox,
                    "no_consumers": True,
                    "chunk_size": CHUNK_BYTES,
                    "jsck": True,
                },
            )
            while not end.is_set():
                with anyio.move_on_after(ANSWER_S) as silence:
                    await wake.wait()
                if silence.cancelled_caught and not end.is_set():
                    raise BackupError(f"NATS sent nothing more for {ANSWER_S:.0f} s")
        finally:
            await chunks.unsubscribe()
        await file.flush()
        await anyio.to_thread.run_sync(os.fsync, file.wrapped.fileno())
        size = await file.tell()
    described = {"config": info["config"], "state": info["state"], SHA256: digest.hexdigest()}
    await anyio.Path(directory / DESCRIPTION).write_bytes(msgspec.json.encode(described))
    return Saved(int(info["state"]["last_seq"]), size)


async def restore(connection: Connection, stream: str, directory: Path, *, replicas: int) -> Saved:
    """Make the stream from a backup, with so many replicas. Raises BackupError, ApiError, OSError.

    Where there is a stream of this name the server refuses.
    """
    described = await anyio.to_thread.run_sync(_described, directory, stream)
    config = {**described["config"], "num_replicas": replicas}
    wanted = {"config": config, "state": described["state"]}
    begun = await JetStream(connection).request(
        f"STREAM.RESTORE.{stream}", wanted, budget_s=ANSWER_S, resends=False
    )
    async with await anyio.open_file(directory / CONTENT, "rb") as file:
        while chunk := await file.read(CHUNK_BYTES):
            await _put(connection, begun["deliver_subject"], chunk)
        size = await file.tell()
    made = await _put(connection, begun["deliver_subject"], b"")
    state = made.get("state", {})
    if "error" in made or state.get("last_seq") != described["state"]["last_seq"]:
        raise BackupError(f"NATS did not restore it: {made.get('error') or state}")
    return Saved(int(state["last_seq"]), size)


def _described(directory: Path, stream: str) -> dict[str, Any]:
    try:
        described: dict[str, Any] = msgspec.json.decode((directory / DESCRIPTION).read_bytes())
        name = described["config"]["name"]
    except (msgspec.DecodeError, KeyError, TypeError) as error:
        raise BackupError(f"{directory / DESCRIPTION} describes no backup: {error!r}") from error
    if name != stream:
        raise BackupError(f"{directory} is a backup of {name}, not of {stream}")
    with open(directory / CONTENT, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if described.get(SHA256, digest) != digest:
        raise BackupError(f"{directory / CONTENT} is damaged: its SHA-256 is {digest}")
    return described


async def _put(connection: Connection, subject: str, chunk: bytes) -> dict[str, Any]:
    answer = await connection.request(subject, chunk, timeout_s=ANSWER_S)
    if answer is None:
        raise BackupError(f"NATS took no more of it within {ANSWER_S:.0f} s")
    found: dict[str, Any] = msgspec.json.decode(answer.data) if answer.data else {}
    if "error" in found:
        raise BackupError(f"NATS did not restore it: {found['error']}")
    return found
