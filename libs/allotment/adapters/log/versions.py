"""Which nats-server versions carry the log: a pure rule, so that it can be tested as one.

Older servers do not refuse what they do not know: they ignore unknown stream settings and headers,
so a compare-and-append or a TTL may silently do nothing. Hence the check at every start.
"""

import re

from allotment.core.logport import LogMisconfigured, Setting

OLDEST_SERVER = (2, 12, 0)
ADVISED_SERVER = (2, 14, 5)

_VERSION = re.compile(r"v?(\d+)\.(\d+)\.(\d+)")


def parse_version(text: str) -> tuple[int, int, int]:
    """The numbers of `2.14.5`, `v2.14.5` or `2.14.5-RC.1`; (0, 0, 0) for anything else."""
    match = _VERSION.match(text.strip())
    return (int(match[1]), int(match[2]), int(match[3])) if match else (0, 0, 0)


def check_server_version(version: str) -> tuple[str, ...]:
    """Warnings for a usable server. Raises LogMisconfigured for one that is too old or unknown."""
    numbers = parse_version(version)
    if numbers < OLDEST_SERVER:
        wanted = f"{_dotted(OLDEST_SERVER)} or newer ({_dotted(ADVISED_SERVER)} advised)"
        raise LogMisconfigured("nats-server", (Setting("version", version or "unknown", wanted),))
    if numbers < ADVISED_SERVER:
        return (
            f"nats-server {version} has known store defects; {_dotted(ADVISED_SERVER)} is advised",
        )
    return ()


def _dotted(numbers: tuple[int, int, int]) -> str:
    return ".".join(map(str, numbers))
