"""Which services local mode runs, and how each is called."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from allotment_local.home import BINDER_CONTEXT

SCHEDULER_NAMES = "allotment,volcano"
DEFAULT_POLICY = Path(__file__).parent / "clusters" / "scheduler.conf"
NATS = "{nats}"
NATS_MONITOR = "{nats-monitor}"
NATS_NKEY = "{nats-nkey}"
KUBECONFIG = "{kubeconfig}"
ARCHIVE = "{archive}"
PAGE_PORT = "{page-port}"
"""Arguments that stand for what is known only when everything before has started: addresses, and
the port that the pages had before, 0 for a free one."""


class ServiceSpec(msgspec.Struct, frozen=True):
    """A service: the first line on its stdout must be a JSON object with its `http` address."""

    name: str
    argv: tuple[str, ...]

    def command(self, values: Mapping[str, str]) -> list[str]:
        """The arguments with the addresses filled in."""
        return [values.get(argument, argument) for argument in self.argv]


def default_services(
    policy_file: Path | None, *, inspector: bool = True, one_process: bool = False
) -> tuple[ServiceSpec, ...]:
    """Watcher, filter, scorer, binder, controller, archiver, and the inspector unless it is not
    wanted; the first four as one process if asked for.
    """
    watcher = ["--kubeconfig", KUBECONFIG, "--scheduler-names", SCHEDULER_NAMES]
    if policy_file is not None:  # who names a file means it, whatever ConfigMap the home has
        watcher += ["--policy-file-first=true"]
    policy_file = DEFAULT_POLICY if policy_file is None else policy_file
    watcher += ["--policy-file", str(policy_file.expanduser().absolute())]
    as_binder = ("--kube-context", BINDER_CONTEXT)
    apart = (
        _service("watcher", *watcher),
        _service("filter"),
        _service("scorer"),
        _service("binder", "--kubeconfig", KUBECONFIG, *as_binder),
    )
    services = (
        *((_service("scheduler", *watcher, *as_binder),) if one_process else apart),
        _service("controller", "--kubeconfig", KUBECONFIG, "--scheduler-names", SCHEDULER_NAMES),
        _service("archiver", "--archive", ARCHIVE),
    )
    return (*services, _service("inspector", "--page-port", PAGE_PORT)) if inspector else services


def _service(name: str, *more: str) -> ServiceSpec:
    nats = ("--nats-url", NATS, "--nats-monitor-url", NATS_MONITOR, "--nats-nkey", NATS_NKEY)
    argv = (sys.executable, "-m", f"allotment_{name}", *nats, "--http-port", "0")
    return ServiceSpec(name, (*argv, *more))


def to_json(services: Sequence[ServiceSpec]) -> str:
    return msgspec.json.encode(services).decode()


def from_json(text: str) -> tuple[ServiceSpec, ...]:
    return msgspec.json.decode(text, type=tuple[ServiceSpec, ...])
