"""Settings: one frozen struct a service, filled from defaults < environment < flags.

A service that starts with a wrong setting and fails an hour later wastes an hour. So every field is
converted and checked before anything is opened, all problems are reported together, and each names
where the value came from, the value, and what would be right. Everything `--help` prints is read
from the struct itself: a field's type, its `Meta(description=…)`, its default.

A field `nats_url` is the flag `--nats-url` and the variable `ALLOT_NATS_URL`. An empty variable is
an unset one. Two keys in `Meta(extra=…)` are understood: `secret` (the value is never shown, not
in messages, not in logs) and `readable_file` (it must exist before the service starts).
"""

import argparse
import difflib
import os
import re
import socket
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn, TypeVar, get_args, get_origin

import msgspec
from msgspec import Meta
from msgspec.structs import FieldInfo

ENV_PREFIX = "ALLOT_"

_HIDDEN = "********"
_USERINFO = re.compile(r"(?<=://)[^/@\s,]+(?=@)")
_NO_VALUE = "\0no value"
"""What argparse stores for a flag that was given without its value; no shell can pass a NUL."""

S = TypeVar("S", bound=msgspec.Struct)


class SettingsError(Exception):
    """Raised when settings cannot be used; `problems` holds one readable line for each."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = list(problems)


def default_instance() -> str:
    """Host name and process id: stable in a container, unique on a developer's machine."""
    return f"{socket.gethostname()}-{os.getpid()}"


class CommonSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What every service needs. A service adds its own fields in a subclass."""

    nats_url: Annotated[
        str,
        Meta(
            description="address of NATS; several servers of one cluster are parted by commas",
            pattern=r"^(nats|tls)://[^\s,]+(,(nats|tls)://[^\s,]+)*$",
            examples=["nats://127.0.0.1:4222", "tls://nats-0:4222,tls://nats-1:4222"],
        ),
    ] = "nats://127.0.0.1:4222"
    nats_creds: Annotated[
        Path | None,
        Meta(description="NATS credentials file (.creds)", extra={"readable_file": True}),
    ] = None
    nats_ca: Annotated[
        Path | None,
        Meta(
            description="certificates (PEM) that sign the NATS server's, if the system's do not",
            extra={"readable_file": True},
        ),
    ] = None
    instance: Annotated[
        str,
        Meta(
            description="name of this process in logs, metrics and traces",
            pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$",
            max_length=253,
            examples=["binder-0"],
        ),
    ] = msgspec.field(default_factory=default_instance)
    http_host: Annotated[
        str, Meta(description="address on which health and metrics are served", min_length=1)
    ] = "127.0.0.1"
    http_port: Annotated[
        int, Meta(description="port for health and metrics; 0 takes a free one", ge=0, le=65535)
    ] = 0
    log_format: Annotated[
        Literal["json", "text"],
        Meta(description="json: one object a line; text: for people"),
    ] = "json"
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"],
        Meta(description="the least important line that is still written"),
    ] = "info"
    snapshot_dir: Annotated[
        Path | None,
        Meta(description="directory for snapshots of the folded log; without one, none are kept"),
    ] = None

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in as_fields(self).items())
        return f"{type(self).__name__}({shown})"


class KubeSettings(CommonSettings, frozen=True, kw_only=True):
    """For the services that talk to Kubernetes."""

    kubeconfig: Annotated[
        Path | None,
        Meta(
            description="kubeconfig file; without one the pod's service account or ~/.kube/config",
            extra={"readable_file": True},
        ),
    ] = None
    kube_context: Annotated[
        str | None,
        Meta(description="context of the kubeconfig file; without one its current context"),
    ] = None
    kube_concurrency: Annotated[
        int, Meta(description="requests to the API server in flight at once", ge=1, le=256)
    ] = 32


def as_fields(settings: msgspec.Struct) -> dict[str, Any]:
    """The settings as plain values for a log line: secrets and passwords inside URLs hidden."""
    shown: dict[str, Any] = {}
    for field in msgspec.structs.fields(settings):
        value = getattr(settings, field.name)
        if _extra(field).get("secret") and value is not None:
            value = _HIDDEN
        elif isinstance(value, str):
            value = _USERINFO.sub(_HIDDEN, value)
        elif isinstance(value, Path):
            value = str(value)
        shown[field.name] = value
    return shown


def load(
    settings_type: type[S],
    argv: Sequence[str],
    environ: Mapping[str, str],
    prog: str,
    description: str,
) -> S:
    """Build the settings of one service.

    `argv` is without the program's name. Raises SettingsError with every problem found. `--help`
    and `--version` print and raise SystemExit(0), as everywhere.
    """
    fields = msgspec.structs.fields(settings_type)
    given, problems = _given(fields, argv, environ, prog, description)
    values: dict[str, Any] = {}
    for field in fields:
        if field.name in given:
            source, raw = given[field.name]
            value, problem = _convert(field, source, raw)
            if problem is None:
                values[field.name] = value
            else:
                problems.append(problem)
        elif field.required:
            problems.append(
                f"{_flag(field)} is missing: give {_flag(field)} or set {_variable(field)}"
                f" ({_description(field)})"
            )
    if problems:
        raise SettingsError(problems)
    try:
        return settings_type(**values)
    except ValueError as error:  # from a struct's __post_init__: fields that do not go together
        raise SettingsError([str(error)]) from error


def _given(
    fields: Sequence[FieldInfo],
    argv: Sequence[str],
    environ: Mapping[str, str],
    prog: str,
    description: str,
) -> tuple[dict[str, tuple[str, str]], list[str]]:
    """What was set, with its source; and the flags that make no sense."""
    given: dict[str, tuple[str, str]] = {}
    problems: list[str] = []
    for field in fields:
        if raw := environ.get(_variable(field), ""):
            given[field.name] = (_variable(field), raw)
    parsed, unknown = _parser(fields, prog, description).parse_known_args(list(argv))
    for field in fields:
        raw = getattr(parsed, field.name)
        if raw == _NO_VALUE:
            problems.append(f"{_flag(field)} needs a value: {_expectation(field)}")
        elif raw is not None:
            given[field.name] = (_flag(field), raw)
    flags = [_flag(field) for field in fields]
    for word in unknown:
        close = difflib.get_close_matches(word.partition("=")[0], flags, n=1)
        hint = f"; did you mean {close[0]}?" if close else f"; see {prog} --help"
        kind = "flag" if word.startswith("-") else "argument"
        problems.append(f"{word}: there is no such {kind}{hint}")
    return given, problems


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise SettingsError([message])


def _parser(fields: Sequence[FieldInfo], prog: str, description: str) -> _Parser:
    parser = _Parser(
        prog=prog,
        description=description,
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="Flags win over environment variables, which win over defaults.",
    )
    parser.add_argument("--version", action="version", version=f"{prog} {version('allotment')}")
    for field in fields:
        text = f"{_description(field)} [{_variable(field)}; {_default_text(field)}]"
        parser.add_argument(
            _flag(field),
            dest=field.name,
            nargs="?",
            const="true" if _is_bool(field) else _NO_VALUE,
            metavar=_metavar(field),
            help=text.replace("%", "%%"),
        )
        if _is_bool(field):
            parser.add_argument(
                _flag(field).replace("--", "--no-", 1),
                dest=field.name,
                action="store_const",
                const="false",
                help=argparse.SUPPRESS,
            )
    return parser


def _convert(field: FieldInfo, source: str, raw: str) -> tuple[Any, str | None]:
    value: object = raw
    if _is_list(field):
        value = [part.strip() for part in raw.split(",") if part.strip()]
    elif _is_bool(field):
        value = {"yes": "true", "on": "true", "no": "false", "off": "false"}.get(raw.lower(), raw)
    try:
        converted = msgspec.convert(value, field.type, strict=False, dec_hook=_decode_path)
    except msgspec.ValidationError:
        return None, f"{source}={_shown(field, raw)}: expected {_expectation(field)}"
    if _extra(field).get("readable_file") and not os.access(str(converted), os.R_OK):
        return None, f"{source}={_shown(field, raw)}: expected a file that exists and can be read"
    return converted, None


def _decode_path(kind: type, value: object) -> object:
    if kind is Path and isinstance(value, str):
        return Path(value).expanduser()
    raise NotImplementedError(f"settings cannot hold a {kind.__name__}")


def _expectation(field: FieldInfo) -> str:
    """What would be right, in words."""
    meta = _meta(field)
    bare = _bare(field)
    if get_origin(bare) is Literal:
        return "one of " + ", ".join(str(choice) for choice in get_args(bare))
    words = {int: "a whole number", float: "a number", bool: "true or false"}.get(bare, "a text")
    if _is_list(field):
        words = "a list parted by commas"
    if meta.ge is not None and meta.le is not None:
        words += f" from {meta.ge} to {meta.le}"
    elif meta.ge is not None:
        words += f" of at least {meta.ge}"
    elif meta.le is not None:
        words += f" of at most {meta.le}"
    if meta.gt is not None:
        words += f" above {meta.gt}"
    if meta.lt is not None:
        words += f" below {meta.lt}"
    if meta.min_length:
        words += f" of at least {meta.min_length} characters"
    if meta.examples:
        words += ", for example " + " or ".join(str(example) for example in meta.examples)
    elif meta.pattern:
        words += f" that matches {meta.pattern}"
    return f"{words} ({_description(field)})"


def _default_text(field: FieldInfo) -> str:
    if field.required:
        return "required"
    default = field.default
    if default is msgspec.NODEFAULT:
        default = field.default_factory()
    if default is None or default == () or default == "":
        return "not set by default"
    if isinstance(default, tuple):
        default = ",".join(str(part) for part in default)
    return f"default: {str(default).lower() if isinstance(default, bool) else default}"


def _flag(field: FieldInfo) -> str:
    return "--" + field.name.replace("_", "-")


def _variable(field: FieldInfo) -> str:
    return ENV_PREFIX + field.name.upper()


def _shown(field: FieldInfo, raw: str) -> str:
    return _HIDDEN if _extra(field).get("secret") else repr(_USERINFO.sub(_HIDDEN, raw))


def _meta(field: FieldInfo) -> Meta:
    if get_origin(field.type) is Annotated:
        for part in field.type.__metadata__:
            if isinstance(part, Meta):
                return part
    return Meta()


def _extra(field: FieldInfo) -> Mapping[str, Any]:
    return _meta(field).extra or {}


def _description(field: FieldInfo) -> str:
    return _meta(field).description or field.name.replace("_", " ")


def _bare(field: FieldInfo) -> Any:
    """The field's type without Annotated and without `| None`."""
    bare = field.type.__origin__ if get_origin(field.type) is Annotated else field.type
    options = [option for option in get_args(bare) if option is not type(None)]
    if get_origin(bare) is not Literal and len(options) == 1 and type(None) in get_args(bare):
        return options[0]
    return bare


def _is_bool(field: FieldInfo) -> bool:
    return _bare(field) is bool


def _is_list(field: FieldInfo) -> bool:
    return get_origin(_bare(field)) in (list, tuple)


def _metavar(field: FieldInfo) -> str:
    bare = _bare(field)
    if get_origin(bare) is Literal:
        return "|".join(str(choice) for choice in get_args(bare))
    if _is_list(field):
        return "A,B,…"
    return {int: "N", float: "N", bool: "true|false", Path: "PATH"}.get(bare, "TEXT")
