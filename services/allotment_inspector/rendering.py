"""Templates: how a page becomes HTML, and which parts of it can change between two moments."""

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import jinja2
import msgspec
from jinja2.runtime import Context
from markupsafe import Markup, escape

from allotment.adapters.service.moments import local_day_text, local_text, zone_text
from allotment.adapters.telemetry.log import printable
from allotment.core.units import bytes_text, duration_text, mib_text, points_text, rfc3339
from allotment_inspector.said import path, typed

HERE = Path(__file__).parent
_AGE = re.compile(r"(<time class=\"age\"[^>]*>)[^<]*(?=</time>)")
_AT_TYPED = re.compile(r"(<span class=\"at\">)[^<]*(?=</span>)")
_FOLLOWING = re.compile(r"<a\b[^>]*\bdata-go\b[^>]*>")
_AT_LINKED = re.compile(r"(?:\?|&amp;)at=\d+")


class Drawn(msgspec.Struct, frozen=True):
    """A page as HTML, and its parts by key: digest and HTML."""

    html: str
    parts: dict[str, tuple[str, str]]


def draw(template: str, values: Mapping[str, Any]) -> Drawn:
    """Draw a template. What it shows is data: everything is escaped."""
    parts: dict[str, tuple[str, str]] = {}
    html = _environment.get_template(template).render(**values, _parts=parts)
    return Drawn(html, parts)


def digest(text: str) -> str:
    """A digest of what a part shows, without ages and without the moment in links and commands:
    app.js rewrites those at each step, in parts that stay as well.
    """
    plain = _AT_TYPED.sub(r"\1", _AGE.sub(r"\1", text))
    plain = _FOLLOWING.sub(lambda tag: _AT_LINKED.sub("", tag[0]), plain)
    return hashlib.blake2b(plain.encode(errors="replace"), digest_size=6).hexdigest()


@jinja2.pass_context
def _part(
    context: Context,
    key: str,
    *,
    caller: Callable[[], str],
    tag: str = "div",
    v: object = None,
    **attributes: object,
) -> Markup:
    content, key = caller(), str(_printable(key))
    shown = _attributes(attributes)
    mark = digest(f"{shown}{content if v is None else v}")
    html = Markup('<{0} data-key="{1}" data-v="{2}"{3}>{4}</{0}>').format(
        Markup(tag), key, mark, shown, Markup(content)
    )
    context["_parts"][key] = (mark, str(html))
    return html


def _attributes(attributes: Mapping[str, object]) -> Markup:
    """`data_x=1` → `data-x="1"`; what is None or False is left out, True stands alone."""
    found = Markup("")
    for name, value in attributes.items():
        if value is None or value is False:
            continue
        name, shown = name.replace("_", "-"), _printable(value)
        found += (
            Markup(" {}").format(name) if value is True else Markup(' {}="{}"').format(name, shown)
        )
    return found


def _printable(value: object) -> object:
    """A value for a page. In text, characters that a browser does not show as themselves are
    escaped: controls, and marks that turn the direction of writing and so reorder what stands next
    to them.
    """
    if not isinstance(value, str) or isinstance(value, Markup):
        return value
    return re.sub(r"[^\n\t]+", lambda run: printable(run[0]), value)


@jinja2.pass_context
def _link(context: Context, to: str, /, **query: object) -> str:
    """An address of ours, at the moment of this page."""
    frame = context.get("frame")
    asked = {name: str(value) for name, value in query.items() if value not in (None, "")}
    if frame is not None and not frame.is_now:
        asked.setdefault("at", str(frame.seq))
    if frame is not None and frame.window:
        asked["window"] = frame.window
    return f"{to}?{urlencode(asked)}" if asked else to


@jinja2.pass_context
def _here(context: Context, **changes: object) -> str:
    """The address of this page, with some of its query changed."""
    frame, asked = context["frame"], dict(context["query"])
    if not frame.is_now:
        asked["at"] = str(frame.seq)
    if frame.window:
        asked["window"] = frame.window
    asked.update((name, str(value)) for name, value in changes.items())
    return f"{context['path_now']}?{urlencode(asked)}" if asked else str(context["path_now"])


@jinja2.pass_context
def _age(context: Context, since_ms: int | None) -> Markup:
    """How long ago that was, at the page's moment; drawn on by the browser."""
    if since_ms is None:
        return Markup("")
    text = duration_text(max(context["frame"].now_ms - since_ms, 0))
    return Markup('<time class="age" data-ms="{}" datetime="{}" title="since {}">{}</time>').format(
        since_ms, rfc3339(since_ms), local_day_text(since_ms), text
    )


@jinja2.pass_context
def _typed_at(context: Context, *words: str, at: int | None = None) -> Markup:
    """A command line as of `at`, or of the page's moment, which app.js keeps up to date."""
    frame = context["frame"]
    if at is not None and at != frame.seq:
        return escape(_printable(typed(*words, at=at)))
    moment = "" if frame.is_now else f" --at {frame.seq}"
    return Markup('{}<span class="at">{}</span>').format(_printable(typed(*words)), moment)


@jinja2.pass_context
def _following(context: Context, line: str) -> Markup:
    """A command line of a view; an ``--at`` for the moment of this page at its end is marked."""
    moment = f" --at {context['frame'].seq}"
    if not line.endswith(moment):
        return escape(_printable(line))
    return Markup('{}<span class="at">{}</span>').format(
        _printable(line.removesuffix(moment)), moment
    )


def size_text(amount: int) -> str:
    """Bytes of many cards: ``733 GiB``, ``346.1 TiB``; below 100 GiB as elsewhere."""
    gib = amount >> 30
    if gib >= 10_240:
        return f"{gib * 10 // 1024 / 10:,.1f} TiB"
    return f"{gib:,} GiB" if gib >= 100 else bytes_text(amount)


def number_text(value: int) -> str:
    """``1,596``."""
    return f"{value:,}"


def percent(part: int, whole: int) -> str:
    """A length in percent for a style: at most two digits behind the point."""
    hundredths = part * 10_000 // whole if whole > 0 else 0
    return f"{hundredths / 100:.2f}".rstrip("0").rstrip(".")


@cache
def static_version(name: str) -> str:
    """What tells one content of a static file from another."""
    content = (HERE / "static" / name).read_bytes()
    return hashlib.blake2b(content, digest_size=6).hexdigest()


def _static(name: str) -> str:
    """The address of a static file; another content has another address."""
    return f"/static/{name}?v={static_version(name)}"


def _plural(count: int, one: str, many: str = "") -> str:
    """``1 pod``, ``2 pods``."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def _environment_of(directories: Iterable[Path]) -> jinja2.Environment:
    found = jinja2.Environment(
        loader=jinja2.FileSystemLoader([str(directory) for directory in directories]),
        autoescape=True,
        finalize=_printable,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    found.globals.update(
        part=_part,
        link=_link,
        here=_here,
        age=_age,
        path=path,
        static=_static,
        percent=percent,
        plural=_plural,
        typed=typed,
        typed_at=_typed_at,
        following=_following,
    )
    found.filters.update(
        mib=mib_text,
        bytes=bytes_text,
        size=size_text,
        duration=duration_text,
        points=points_text,
        clock=local_text,
        day=local_day_text,
        zone=zone_text,
        number=number_text,
        rfc3339=rfc3339,
    )
    return found


_environment = _environment_of([HERE / "templates"])
