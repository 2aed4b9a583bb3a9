"""The policy in force: read from the configuration file at start, and again when it changes.

A broken file at start is an error of start-up. A file that breaks later leaves in force the policy
that was, and is reported.
"""

import hashlib
from pathlib import Path
from typing import NamedTuple

import anyio

from allotment.core.policy import Parsed, PolicyError, built_in, parse
from allotment_proto.events import PolicyLoaded

POLL_S = 2.0
BUILT_IN = "built in"


Fingerprint = tuple[int, int]


class Loaded(NamedTuple):
    """A policy, and the file's fingerprint from just before it was read.

    With `problems` it is an older one, because the file as it is now is broken.
    """

    event: PolicyLoaded
    warnings: tuple[str, ...]
    seen: Fingerprint | None = None
    problems: tuple[str, ...] = ()


async def load_policy(path: Path | None, scheduler_names: tuple[str, ...]) -> Loaded:
    """The policy of the file, or the built-in one. Raises PolicyError naming every mistake."""
    if path is None:
        return _loaded("", BUILT_IN, Parsed(built_in(scheduler_names), ()))
    seen = await fingerprint(path)
    try:
        text = await anyio.Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise PolicyError((f"{path}: cannot be read: {error}",)) from error
    return _loaded(text, str(path), parse(text, str(path), scheduler_names))._replace(seen=seen)


async def fingerprint(path: Path) -> Fingerprint | None:
    """Changes when the file does; None while it cannot be looked at."""
    try:
        stat = await anyio.Path(path).stat()
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_size


def _loaded(text: str, source: str, parsed: Parsed) -> Loaded:
    digest = hashlib.sha256(text.encode()).hexdigest()
    return Loaded(
        PolicyLoaded(policy=parsed.policy, source=source, text_sha256=digest), parsed.warnings
    )
