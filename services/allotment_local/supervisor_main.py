"""`python -m allotment_local.supervisor_main`: a supervisor of its own, for `allot up -d`.

Until everything is ready it tells its starter how it goes, in lines of JSON on stdout:
{"say": …} any number of times, then one of {"ready": true}, {"running": true}, {"failed": […]}.
The same goes to stderr, the supervisor's log, with the time.
"""

import argparse
import contextlib
import json
import os
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import anyio

from allotment_local.home import AlreadyRunning, Home
from allotment_local.specs import default_services, from_json
from allotment_local.supervisor import StartFailed, Supervisor


class _Starter:
    """The process that waits for us at the other end of stdout; it may have gone away."""

    def __init__(self) -> None:
        self._listens = True

    def tell(self, **what: Any) -> None:
        text = "; ".join(
            str(value) if key == "say" else f"{key}: {value}" for key, value in what.items()
        )
        print(f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ} {text}", file=sys.stderr, flush=True)
        if self._listens:
            with contextlib.suppress(BrokenPipeError):
                os.write(1, json.dumps(what).encode() + b"\n")

    def say(self, text: str) -> None:
        self.tell(say=text)

    def leave(self) -> None:
        """Close the conversation, so that the starter need not wait for our end."""
        self._listens = False
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.close(nowhere)

    def ready(self) -> None:
        self.tell(ready=True)
        self.leave()


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m allotment_local.supervisor_main", description=__doc__
    )
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--nodes", type=Path, help="YAML of node shapes")
    parser.add_argument("--allocate-ms", type=int, default=0, help="of device plugins")
    parser.add_argument("--services", help="the services to run, as JSON")
    arguments = parser.parse_args()
    starter = _Starter()
    services = from_json(arguments.services) if arguments.services else default_services(None)

    async def life() -> None:
        supervisor = Supervisor(
            Home(arguments.home),
            services,
            arguments.nodes,
            starter.say,
            allocate_ms=arguments.allocate_ms,
        )
        await supervisor.run(starter.ready)

    try:
        anyio.run(life)
    except AlreadyRunning:
        starter.tell(running=True)
    except StartFailed as error:
        starter.tell(failed=error.problems)
        sys.exit(1)


if __name__ == "__main__":
    main()
