"""Which machine a report was measured on: reports of different machines are not compared."""

import hashlib
import os
import platform
import socket
from pathlib import Path

_ID = Path("/etc/machine-id")


def this_machine() -> dict[str, str]:
    """What tells this machine from others, in words where there are some."""
    try:
        identity = _ID.read_text(encoding="utf-8").strip()
    except OSError:
        identity = ""
    identity = f"{identity} {socket.gethostname()}"
    return {
        "cpu": _cpu(),
        "cores": str(os.cpu_count() or 0),
        "id": hashlib.sha256(identity.encode()).hexdigest()[:12],
    }


def words(machine: dict[str, str]) -> str:
    """One line about a machine."""
    return f"{machine.get('cores')} × {machine.get('cpu')} ({machine.get('id')})"


def _cpu() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
