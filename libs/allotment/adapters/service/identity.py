"""The identity of the log, kept outside NATS: no new log is started where there was one.

NATS can lose a stream: a volume is replaced, a server joins a cluster and removes what the cluster
does not know, an old backup is restored. The stream that is made next has the same name. So the
watcher keeps the last sequence that it knows, with that record's digest, in a ConfigMap. The
writer of decisions compares: the log must still have that record. A restored log has it, too, so a
backup that is complete is accepted as it is.
"""

from typing import Annotated, TypeVar

import anyio
import msgspec

from allotment.adapters.kube.client import KubeClient
from allotment.adapters.kube.kept_text import KeptText, TextUnavailable
from allotment.adapters.log.connection import Connection
from allotment.adapters.log.fold import Fold
from allotment.adapters.log.log import JetStreamLog, LogMissing
from allotment.adapters.service.service import ServiceContext
from allotment.adapters.service.settings import CommonSettings
from allotment.core.logport import LogUnavailable, digest_of
from allotment_proto.codec import UNREADABLE

PAUSE_S = 1.0
KEEP_EVERY_S = 10.0
ADVICE = "Restore the log, or accept the loss and begin a new one: {remove}"

S = TypeVar("S", bound=CommonSettings)


class Identity(msgspec.Struct, frozen=True):
    """The furthest record known of a log: its sequence and digest, and the chain's head there, for
    `allot log verify`; 0 and "" of an empty log.
    """

    log: str
    seq: Annotated[int, msgspec.Meta(ge=0)] = 0
    record: str = ""
    chain: str = ""


async def open_log(
    ctx: ServiceContext[S],
    connection: Connection,
    kept: KeptText | None,
    *,
    makes: bool,
    max_bytes: int = -1,
) -> JetStreamLog:
    """The log, once it is there and is the one that was known; until then not ready, and why.

    `makes`: make the stream where neither a stream nor an identity exists. Raises LogMisconfigured.
    """
    settings = ctx.settings
    said = ""
    while True:
        known, log, trouble = None, None, ""
        try:
            known = None if kept is None else _read(await kept.read(), kept)
            log = await JetStreamLog.open(
                connection,
                replicas=settings.log_replicas,
                monitor_url=settings.nats_monitor_url,
                allow_unsynced=settings.allow_unsynced,
                makes=makes and known is None,
                max_bytes=max_bytes,
            )
            trouble = "" if known is None else await _difference(known, log)
        except LogMissing as error:
            if known is None:
                trouble = f"{error}; the watcher makes it"
            else:
                trouble = f"LogLost: {error}, but its records up to {known.seq} are known"
        except TextUnavailable as error:
            trouble = f"the identity of the log cannot be read: {error}"
        except LogUnavailable as error:
            trouble = str(error)
        if log is not None and not trouble:
            if makes and kept is not None and known is None:
                try:
                    await kept.write(_encoded(Identity(log.identity)))
                except TextUnavailable as error:  # `keep_identity` tries again
                    ctx.log.warning("the identity of the log is not kept", reason=str(error))
            return log
        if (
            known is not None
            and kept is not None
            and trouble.startswith(("LogLost", "LogReplaced"))
        ):
            trouble += f" ({kept.name}). Nothing is scheduled. " + ADVICE.format(remove=kept.remove)
        ctx.ready("log", False, trouble)
        if trouble != said:
            said = trouble
            ctx.log.error("the log is not opened", reason=trouble)
        await anyio.sleep(PAUSE_S)


def _read(text: str | None, kept: KeptText) -> Identity | None:
    """What is kept. Raises TextUnavailable for what cannot be read: it is not nothing."""
    if text is None:
        return None
    try:
        return msgspec.json.decode(text, type=Identity)
    except UNREADABLE as error:
        wrong = f"{kept.name} holds {text[:100]!r}: {error}"
        raise TextUnavailable(f"{wrong}. Mend it, or: {kept.remove}") from error


async def _difference(known: Identity, log: JetStreamLog) -> str:
    """What shows that the log is not the one that was known; "" if nothing does."""
    if not known.seq:
        same = known.log == log.identity
        return "" if same else f"LogReplaced: the log is {log.identity}, not {known.log}"
    last_seq = await log.last_seq()
    if last_seq < known.seq:
        return f"LogLost: the log ends at {last_seq}, but its records up to {known.seq} are known"
    record = await log.record(known.seq)
    if record is None and known.log == log.identity and known.seq < await log.first_seq():
        return ""  # it has left NATS with its segment
    if record is None or digest_of(record) != known.record:
        return f"LogReplaced: another record is at {known.seq} of the log than was known"
    return ""


async def keep_identity(
    ctx: ServiceContext[S], kept: KeptText, log: JetStreamLog, fold: Fold
) -> None:
    """Keep, for ever, how far the log was followed. For the one active replica."""
    written = Identity(log.identity)
    is_failing = False
    while True:
        last = fold.last
        known = written
        if last is not None:
            head = fold.chain_at(last.seq)
            known = Identity(log.identity, last.seq, digest_of(last), head)
        if known != written:
            try:
                await kept.write(_encoded(known))
            except TextUnavailable as error:
                if not is_failing:
                    ctx.log.warning("the identity of the log is not kept", reason=str(error))
                is_failing = True
            else:
                written, is_failing = known, False
        await anyio.sleep(KEEP_EVERY_S)


def _encoded(known: Identity) -> str:
    return msgspec.json.encode(known).decode()


def kept_of(client: KubeClient, config_map: str) -> KeptText | None:
    """Where a service's settings say that the identity is kept."""
    if config_map == "none":
        return None
    return KeptText(client, *config_map.split("/"))
