"""`python -m allotment_local.warden --home DIR`: ends the services when their supervisor is gone.

A supervisor that is killed cannot end its children. This process waits for the end of a pipe that
only the supervisor holds open; then it ends whatever the state file says still runs. After an
orderly stop nothing does, and it simply leaves. It is one small process for all services.
"""

import argparse
import os
import signal
import sys
from pathlib import Path

from allotment_local.processes import end, pids_text
from allotment_local.state import StateError, read_state

TERM_S = 10.0


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m allotment_local.warden", description=__doc__)
    parser.add_argument("--home", type=Path, required=True, help="the home to guard")
    home: Path = parser.parse_args().home
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while os.read(sys.stdin.fileno(), 4096):
        pass
    try:
        state = read_state(home / "state.json")
    except StateError as error:
        sys.exit(f"warden: {error}")
    if state is None:
        return
    own = os.getpid()
    if left := end([each for each in state.processes() if each.pid not in (0, own)], TERM_S):
        sys.exit(f"warden: these would not end: {pids_text(left)}")


if __name__ == "__main__":
    main()
