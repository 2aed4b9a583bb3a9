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
import socket
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn, TypeVar

import msgspec
from msgspec import Meta
from msgspec.structs import FieldInfo

from allotment.adapters.log.nats_client import Credentials
from allotment.adapters.service.settings_fields import (
    HIDDEN,
    default_text,
    description_of,
    expectation_of,
    extra_of,
    flag_of,
    is_bool,
    is_list,
    metavar_of,
    shown_of,
    variable_of,
    without_password,
)

_NO_VALUE = "\0no value"
"""What argparse stores for a flag that was given without its value; no shell can pass a NUL."""

NAME = "[a-z0-9]([-a-z0-9.]*[a-z0-9])?"
"""A name or namespace in Kubernetes, as a pattern."""

S = TypeVar("S", bound=msgspec.Struct)


class SettingsError(Exception):
    """Raised when settings cannot be used; `problems` holds one readable line for each."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = list(problems)


def default_instance() -> str:
    """Host name and process id: stable in a container, unique on a developer's machine."""
    return f"{socket.gethostname()}-{os.getpid()}"


_NATS_URL = r"(nats|tls)://([^\s,/@]+@)?(\[[0-9a-fA-F:.]+\]|[^\s,:/\[\]]+)(:[0-9]{1,5})?"
NATS_URLS = f"^{_NATS_URL}(,{_NATS_URL})*$"
"""Addresses of the servers of one cluster."""


class CommonSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What every service needs. A service adds its own fields in a subclass."""

    nats_url: Annotated[
        str,
        Meta(
            description="address of NATS; several servers of one cluster are parted by commas",
            pattern=NATS_URLS,
            examples=["nats://127.0.0.1:4222", "tls://nats-0:4222,tls://nats-1:4222"],
        ),
    ] = "nats://127.0.0.1:4222"
    nats_creds: Annotated[
        Path | None,
        Meta(description="NATS credentials file (.creds)", extra={"readable_file": True}),
    ] = None
    nats_nkey: Annotated[
        Path | None,
        Meta(
            description="file with the seed of this service's NATS key (allot nats-users)",
            extra={"readable_file": True},
        ),
    ] = None
    nats_ca: Annotated[
        Path | None,
        Meta(
            description="certificates (PEM) that sign the NATS server's, if the system's do not",
            extra={"readable_file": True},
        ),
    ] = None
    nats_monitor_url: Annotated[
        Annotated[str, Meta(pattern=r"^https?://[^\s,]+$")] | None,
        Meta(
            description="the NATS server's monitoring address, to check that it syncs every write",
            examples=["http://127.0.0.1:8222"],
        ),
    ] = None
    log_replicas: Annotated[
        int,
        Meta(description="replicas of the log when it is made: 1, or 3 in a cluster", ge=1, le=5),
    ] = 1
    allow_unsynced: Annotated[
        bool,
        Meta(description="accept a NATS server that may lose acknowledged writes on power loss"),
    ] = False
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
    log_config_map: Annotated[
        str,
        Meta(
            description="ConfigMap (namespace/name) that keeps the identity of the log, so that"
            " no service starts a new log after one was lost; none: a loss is not detected",
            pattern=rf"^(none|{NAME}/{NAME})$",
            examples=["allotment-system/allotment-log", "none"],
        ),
    ] = "allotment-system/allotment-log"
    kube_concurrency: Annotated[
        int, Meta(description="requests to the API server in flight at once", ge=1, le=256)
    ] = 32


def as_fields(settings: msgspec.Struct) -> dict[str, Any]:
    """The settings as plain values for a log line: secrets and passwords inside URLs hidden."""
    shown: dict[str, Any] = {}
    for field in msgspec.structs.fields(settings):
        value = getattr(settings, field.name)
        if extra_of(field).get("secret") and value is not None:
            value = HIDDEN
        elif isinstance(value, str):
            value = without_password(value)
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
                f"{flag_of(field)} is missing: give {flag_of(field)} or set {variable_of(field)}"
                f" ({description_of(field)})"
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
        if raw := environ.get(variable_of(field), ""):
            given[field.name] = (variable_of(field), raw)
    parsed, unknown = _parser(fields, prog, description).parse_known_args(list(argv))
    for field in fields:
        raw = getattr(parsed, field.name)
        if raw == _NO_VALUE:
            problems.append(f"{flag_of(field)} needs a value: {expectation_of(field)}")
        elif raw is not None:
            given[field.name] = (flag_of(field), raw)
    flags = [flag_of(field) for field in fields]
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
        text = f"{description_of(field)} [{variable_of(field)}; {default_text(field)}]"
        parser.add_argument(
            flag_of(field),
            dest=field.name,
            nargs="?",
            const="true" if is_bool(field) else _NO_VALUE,
            metavar=metavar_of(field),
            help=text.replace("%", "%%"),
        )
        if is_bool(field):
            parser.add_argument(
                flag_of(field).replace("--", "--no-", 1),
                dest=field.name,
                action="store_const",
                const="false",
                help=argparse.SUPPRESS,
            )
    return parser


def _convert(field: FieldInfo, source: str, raw: str) -> tuple[Any, str | None]:
    value: object = raw
    if is_list(field):
        value = [part.strip() for part in raw.split(",") if part.strip()]
    elif is_bool(field):
        value = {"yes": "true", "on": "true", "no": "false", "off": "false"}.get(raw.lower(), raw)
    try:
        converted = msgspec.convert(value, field.type, strict=False, dec_hook=_decode_path)
    except msgspec.ValidationError:
        return None, f"{source}={shown_of(field, raw)}: expected {expectation_of(field)}"
    if extra_of(field).get("readable_file") and not os.access(str(converted), os.R_OK):
        return None, f"{source}={shown_of(field, raw)}: expected a file that exists and can be read"
    return converted, None


def _decode_path(kind: type, value: object) -> object:
    if kind is Path and isinstance(value, str):
        return Path(value).expanduser()
    raise NotImplementedError(f"settings cannot hold a {kind.__name__}")


def credentials_of(settings: CommonSettings) -> Credentials:
    """How a service proves who it is, as its settings say."""
    return Credentials(
        creds_file=_text(settings.nats_creds),
        nkey_seed_file=_text(settings.nats_nkey),
        tls_ca_file=_text(settings.nats_ca),
    )


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)
