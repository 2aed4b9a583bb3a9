"""The pages over HTTP: addresses, moments, HTML or JSON, parts, and the stream of what is new."""

import contextlib
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import NamedTuple

import anyio
import anyio.to_thread
import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from allotment.adapters.service.http import listening
from allotment.adapters.service.moments import (
    FORMS,
    AtSequence,
    MomentError,
    parse,
    show_in_zone,
)
from allotment.adapters.telemetry.log import Logger
from allotment.core.errors import AllotError
from allotment.core.logport import LogUnavailable
from allotment_inspector.frame import BINS, HEIGHT, Frame, frame_of, headline
from allotment_inspector.guard import HEADERS, Guard
from allotment_inspector.history import History, Moment
from allotment_inspector.pages import PAGES, NotFound, Page
from allotment_inspector.rendering import HERE, Drawn, draw, static_version

VIEWS_AT_ONCE = 2
ZONE_COOKIE, ZONE_MINUTES_MAX = "allotment_zone", 840
"""How many minutes the browser's clock is ahead of UTC, as app.js says."""
STREAM_PAUSE_S = 0.25
"""Browsers get news at most this often."""
STREAM_ALIVE_S = 2.0
"""How often browsers get a sign of life, and whether NATS still brings news."""
OLDER_WITHIN_S = 4.0
"""So long a page waits for older records that it needs; then it is drawn without them."""
QUERY_CHARS_MAX = 2_000
STEPS = {"-1": -1, "1": 1, "-mark": -1, "mark": 1}
"""What `go` may say: the record before or after the one of `at`, or the marked one."""

_STATIC = "/static/"
_OWN = frozenset(("at", "go", "parts", "format", "theme", "window"))
"""What a query says to the server rather than to a view."""
_encoder = msgspec.json.Encoder()


class BadMoment(Exception):
    """Raised for an `at` or a `go` that is none; its text says what would be right."""


class Asked(NamedTuple):
    """What a browser asked for, apart from the moment."""

    page: Page
    match: Mapping[str, str]
    query: Mapping[str, str]
    form: str
    path: str
    window: str
    """How much of the log the slider is to show."""


class Pages:
    """The application: one per process."""

    def __init__(
        self,
        history: History,
        logger: Logger,
        *,
        cluster: str,
        names: tuple[str, ...] = (),
        token: str | None = None,
        trouble: Callable[[], str] = lambda: "",
        clock_s: Callable[[], float] = time.time,
    ) -> None:
        self.guard = Guard(names, token, self._said, clock_s)
        self.streams = 0
        self.drawn: dict[str, int] = {page.name: 0 for page in PAGES}
        self.drawn_s: dict[str, float] = {page.name: 0.0 for page in PAGES}
        self.failures = 0
        self._history = history
        self._logger = logger
        self._cluster = cluster
        self._trouble = trouble
        self._clock_s = clock_s
        self._limiter = anyio.CapacityLimiter(VIEWS_AT_ONCE)
        self._stopping = anyio.Event()

    def application(self) -> web.Application:
        """All addresses."""
        app = web.Application(middlewares=[self.guard.middleware(), self._careful()])
        app.on_response_prepare.append(_add_headers)
        app.router.add_get("/events", self._events, allow_head=False)
        app.router.add_get("/token", self._greet)
        app.router.add_static(_STATIC, HERE / "static", append_version=False)
        for page in PAGES:
            pattern = re.sub(r"{(\w+)}", r"{\1:[^/]+}", page.pattern)  # braces in names, too
            app.router.add_get(pattern, self._handler(page))
        return app

    def stop(self) -> None:
        """End the streams, so that the server need not wait for browsers."""
        self._stopping.set()

    # Pages

    def _handler(self, page: Page) -> Handler:
        async def answer(request: web.Request) -> web.StreamResponse:
            began_s = time.perf_counter()
            zone = request.cookies.get(ZONE_COOKIE, "")
            if re.fullmatch(r"-?\d{1,3}", zone) and abs(int(zone)) <= ZONE_MINUTES_MAX:
                show_in_zone(int(zone))
            asked = Asked(
                page,
                dict(request.match_info),
                {name: value for name, value in request.query.items() if name not in _OWN},
                _form(request),
                request.rel_url.raw_path,
                request.query.get("window", ""),
            )
            seq = await self._wanted(request.query)
            until_s = time.monotonic() + (0 if asked.form == "parts" else OLDER_WITHIN_S)
            while True:
                async with self._history.moment(seq) as moment:
                    response = await anyio.to_thread.run_sync(
                        self._respond, moment, asked, limiter=self._limiter
                    )
                if moment.missed_seq:
                    self._history.ask_back()
                wait_s = until_s - time.monotonic()
                if not moment.is_needy or moment.unread or wait_s <= 0:
                    break
                await self._history.asked_back(wait_s)
            self.drawn[page.name] += 1
            self.drawn_s[page.name] += time.perf_counter() - began_s
            return response

        return answer

    def _respond(self, moment: Moment, asked: Asked) -> web.Response:
        """Look at the moment and draw: in a worker thread."""
        page = asked.page
        if asked.form == "csv" and page.csv is not None:
            return _csv(page.csv(moment, asked.match, asked.query), f"{page.name}-{moment.seq}.csv")
        found = page.view(moment, asked.match, asked.query)
        status = 200
        if isinstance(found, NotFound):
            found, status = found.of(moment), 404
        if asked.form == "json":
            said = {
                "seq": moment.seq,
                "unreadSeq": moment.missed_seq,
                "timeMs": moment.time_ms,
                "isNow": moment.is_now,
                page.name: found,
            }
            return _json(_encoder.encode(said), status)
        command = page.command(moment, asked.match, asked.query) if status == 200 else ""
        frame = frame_of(moment, asked.window)
        drawn = draw(
            page.template if status == 200 else "not_found.html",
            {
                "page": found,
                "frame": frame,
                "name": page.name,
                "nav": [(each.name, each.nav, each.pattern) for each in PAGES if each.nav],
                "query": asked.query,
                "path_now": asked.path,
                "cluster": self._cluster,
                "command": command,
                "bins": BINS,
                "height": HEIGHT,
                "q": asked.query.get("q", ""),
            },
        )
        if asked.form == "parts":
            return _json(_parts_body(drawn, frame), status)
        response = web.Response(text=drawn.html, content_type="text/html", status=status)
        response.enable_compression()
        return response

    async def _wanted(self, query: Mapping[str, str]) -> int | None:
        """The sequence that a query names, None for the newest."""
        at, go = query.get("at", ""), query.get("go", "")
        if not at and not go:
            return None
        seq = self._history.head_seq
        if at:
            try:
                moment = parse(at, int(self._clock_s() * 1000))
            except MomentError as error:
                raise BadMoment(f"at={error}: give {FORMS}") from None
            if isinstance(moment, AtSequence):
                seq = moment.seq
            else:
                seq = await self._history.seq_at(moment.ms)
        if not go:
            return seq
        if go not in STEPS:
            raise BadMoment(f"go={go!r} is not one of {', '.join(STEPS)}")
        if go.endswith("mark"):
            marked = self._history.index.marked(seq, STEPS[go])
            return seq if marked is None else marked
        return max(seq + STEPS[go], 0)

    # Errors

    def _careful(self) -> Middleware:
        @web.middleware
        async def careful(request: web.Request, handler: Handler) -> web.StreamResponse:
            if len(request.query_string) > QUERY_CHARS_MAX:
                return self._said(
                    request, 414, "Address too long", "The query of this address is too long."
                )
            try:
                return await handler(request)
            except BadMoment as error:
                return self._said(request, 400, "Invalid moment", str(error))
            except LogUnavailable as error:
                return self._said(request, 503, "Log unavailable", str(error))
            except AllotError as error:
                return self._said(request, 503, "Archive unavailable", str(error))
            except web.HTTPNotFound:
                text = f"{request.path} does not exist."
                return self._said(request, 404, "No such page", text)
            except web.HTTPException:
                raise
            except Exception as error:
                self.failures += 1
                self._logger.error("defect; a page was not drawn", error=error, path=request.path)
                text = "This page failed. See the log of the inspector for the cause."
                return self._said(request, 500, "Internal error", text)

        return careful

    def _said(self, request: web.Request, status: int, title: str, text: str) -> web.Response:
        if _form(request) != "html":
            return _json(_encoder.encode({"error": title, "message": text}), status)
        drawn = draw("said.html", {"status": status, "title": title, "text": text})
        return web.Response(text=drawn.html, content_type="text/html", status=status)

    # Live

    async def _greet(self, request: web.Request) -> web.Response:
        return self.guard.greet(request)

    async def _events(self, request: web.Request) -> web.StreamResponse:
        """Server-Sent Events: where the log ends, whenever it has grown, and now and then."""
        response = web.StreamResponse()
        response.content_type = "text/event-stream"
        await response.prepare(request)
        self.streams += 1
        try:
            while not self._stopping.is_set():
                told, unread = self._history.head_seq, self._history.unlisted_seq
                since_ms = self._history.silent_since_ms()
                news = {
                    "head": told,
                    "unread": unread,
                    "trouble": self._trouble(),
                    "headline": headline(since_ms, self._history.idle()),
                    "sinceMs": since_ms,
                }
                await response.write(b"data: " + _encoder.encode(news) + b"\n\n")
                await self._news(told, unread)
        except ConnectionError:
            pass  # the browser went
        finally:
            self.streams -= 1
        return response

    async def _news(self, told: int, unread: int) -> None:
        """Wait for a record after `told`, for older ones to be indexed, or for the time to say that
        we are alive.
        """
        async with anyio.create_task_group() as group:

            async def end_on(wait: Callable[[], Awaitable[object]]) -> None:
                await wait()
                group.cancel_scope.cancel()

            group.start_soon(end_on, self._stopping.wait)
            with anyio.move_on_after(STREAM_ALIVE_S):
                while self._history.head_seq <= told and self._history.unlisted_seq == unread:
                    await self._history.changed()
                await anyio.sleep(STREAM_PAUSE_S)
            group.cancel_scope.cancel()


@contextlib.asynccontextmanager
async def serve_pages(pages: Pages, host: str, port: int) -> AsyncIterator[str]:
    """Serve until the scope is left; yields the address as a URL. Raises CannotListen."""
    async with listening(pages.application(), host, port, "page") as address:
        try:
            yield f"http://{address}"
        finally:
            pages.stop()


def _form(request: web.Request) -> str:
    """How the answer is wanted: ``html``, ``json``, ``csv`` or ``parts``."""
    if request.query.get("parts"):
        return "parts"
    if request.query.get("format") == "csv":
        return "csv"
    accepted = request.headers.get("Accept", "")
    is_json = accepted.startswith("application/json") or request.query.get("format") == "json"
    return "json" if is_json else "html"


def _parts_body(drawn: Drawn, frame: Frame) -> bytes:
    return _encoder.encode(
        {
            "seq": frame.seq,
            "head": frame.head_seq,
            "ms": frame.ms,
            "nowMs": frame.now_ms,
            "clock": frame.clock,
            "isNow": frame.is_now,
            "firstMs": frame.first_ms,
            "lastMs": frame.last_ms,
            "x": frame.x,
            "text": frame.text,
            "parts": drawn.parts,
        }
    )


def _json(body: bytes, status: int) -> web.Response:
    response = web.Response(body=body + b"\n", content_type="application/json", status=status)
    response.enable_compression()
    return response


def _csv(text: str, name: str) -> web.Response:
    response = web.Response(text=text, content_type="text/csv")
    response.headers["Content-Disposition"] = f'attachment; filename="{name}"'
    response.enable_compression()
    return response


async def _add_headers(request: web.Request, response: web.StreamResponse) -> None:
    response.headers.update(HEADERS)
    response.headers["Cache-Control"] = _lasting(request, response.status)


def _lasting(request: web.Request, status: int) -> str:
    """How long a browser may keep an answer: a static file for ever under the address that names
    its content. While two releases run side by side, an address may lead to the other's file.
    """
    if not request.path.startswith(_STATIC) or status not in (200, 304):
        return "no-store"
    is_same = request.query.get("v") == static_version(request.path.removeprefix(_STATIC))
    return "max-age=31536000, immutable" if is_same else "no-cache"
