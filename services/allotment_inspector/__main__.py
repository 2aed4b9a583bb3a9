"""The inspector: web pages about the allocation log, at any of its moments. It reads only."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio
import anyio.to_thread

from allotment.adapters.log.fold import Fold
from allotment.adapters.log.nats_users import INSPECTOR
from allotment.adapters.service.reading import ReadableLog, open_file, open_reading
from allotment.adapters.service.service import ServiceContext, start_service
from allotment.adapters.service.settings import SettingsError
from allotment.core.logport import LogUnavailable
from allotment_inspector.history import History
from allotment_inspector.server import Pages, serve_pages
from allotment_inspector.settings import TOKEN_CHARS_MIN, InspectorSettings, is_loopback
from allotment_inspector.traces import TraceExport

Context = ServiceContext[InspectorSettings]
MIB = 1 << 20


async def run(ctx: Context, listening: Callable[[str], None] = lambda address: None) -> None:
    """Serve the pages until stopped; `listening` gets the URL once browsers may come."""
    settings = ctx.settings
    token = await anyio.to_thread.run_sync(token_of, settings.page_token_file)
    if token is None and not is_loopback(settings.page_host):
        ctx.log.warning(
            "everybody who reaches the pages can read them; set page_token_file",
            page_host=settings.page_host,
        )
    ctx.ready("pages", False, "not listening yet")
    # The clock of a log that does not grow stands still.
    clock_ms = _clock_ms if settings.file is None else int

    with _files(settings) as directory:
        history = History(settings.history_mib * MIB, clock_ms, ctx.log, directory)
        traces = TraceExport(ctx)

        async def attach(fold: Fold, log: ReadableLog) -> None:
            history.attach(fold, log)
            await history.open()
            traces.attach(fold)

        opened = (
            open_reading(ctx, INSPECTOR, attach, settings.archive)
            if settings.file is None
            else open_file(ctx, settings.file, attach)
        )
        async with opened as reading:
            history.silent_since_ms, history.active = reading.silent_since_ms, reading.active
            pages = Pages(
                history,
                ctx.log,
                cluster=settings.cluster,
                names=settings.page_names,
                token=token,
                trouble=lambda: reading.trouble() or history.trouble,
            )
            expose(ctx, history, pages)
            async with (
                serve_pages(pages, settings.page_host, settings.page_port) as address,
                anyio.create_task_group() as group,
            ):
                ctx.ready("pages", True, address)
                ctx.log.info("pages", address=address)
                listening(address)
                group.start_soon(history.keep)
                group.start_soon(history.read_back)
                group.start_soon(history.fill)
                group.start_soon(traces.run, reading.fold)
                with ctx.until_stop():
                    await anyio.sleep_forever()
                group.cancel_scope.cancel()
            try:
                await history.close()
            except LogUnavailable as error:
                ctx.log.warning("what was learned is not kept", reason=str(error))


@contextmanager
def _files(settings: InspectorSettings) -> Iterator[Path]:
    """Where what is known of the past is kept: with the snapshots, else until we stop."""
    if settings.snapshot_dir is not None and settings.file is None:
        yield settings.snapshot_dir / INSPECTOR / "past"
        return
    with TemporaryDirectory(prefix="allotment-inspector-") as directory:
        yield Path(directory)


def _clock_ms() -> int:
    return time.time_ns() // 1_000_000


def token_of(path: Path | None) -> str | None:
    """The token in a file. Raises SettingsError for one that is too short to be a secret, or that
    no browser can show: a header holds ASCII.
    """
    if path is None:
        return None
    token = path.read_bytes().strip().decode("ascii", errors="replace")
    if not all("!" <= char <= "~" for char in token):
        raise SettingsError(
            [f"{path} holds a token that no browser can show: give ASCII letters and digits only"]
        )
    if len(token) < TOKEN_CHARS_MIN:
        raise SettingsError(
            [f"{path} holds a token of {len(token)} characters: give at least {TOKEN_CHARS_MIN}"]
        )
    return token


def expose(ctx: Context, history: History, pages: Pages) -> None:
    """What the inspector counts in addition to what every service does."""
    metrics = ctx.metrics
    metrics.expose(
        "allot_inspector_records_kept_bytes",
        "memory of the last records, kept as they were written",
        lambda: history.recent_bytes,
    )
    metrics.expose(
        "allot_inspector_moments_total",
        "moments that were asked for",
        lambda: history.builds,
        kind="counter",
    )
    metrics.expose(
        "allot_inspector_moment_seconds_total",
        "time that coming to these moments took",
        lambda: history.build_s,
        kind="counter",
    )
    metrics.expose(
        "allot_inspector_moment_records_total",
        "records that were folded to come to these moments",
        lambda: history.folded_records,
        kind="counter",
    )
    metrics.expose(
        "allot_inspector_pages_total",
        "pages that were drawn, by page",
        lambda: {(name,): count for name, count in pages.drawn.items()},
        labels=("page",),
        kind="counter",
    )
    metrics.expose(
        "allot_inspector_page_seconds_total",
        "time that drawing pages took, by page",
        lambda: {(name,): spent_s for name, spent_s in pages.drawn_s.items()},
        labels=("page",),
        kind="counter",
    )
    metrics.expose(
        "allot_inspector_page_failures_total",
        "pages that were not drawn because of a defect",
        lambda: pages.failures,
        kind="counter",
    )
    metrics.expose(
        "allot_inspector_refused_requests_total",
        "requests that were refused, by what was wrong with them",
        lambda: {(why,): count for why, count in pages.guard.refused.items()},
        labels=("why",),
        kind="counter",
    )
    metrics.expose("allot_inspector_streams", "browsers that are live", lambda: pages.streams)


def main() -> None:
    sys.exit(
        start_service(
            "allotment-inspector",
            InspectorSettings,
            run,
            "Shows the cluster's cards and every decision, at any moment of the log.",
        )
    )


if __name__ == "__main__":
    main()
