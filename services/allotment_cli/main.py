"""The `allot` command. Each subcommand is imported only when it is called: start-up stays short."""

import sys
from typing import Any

import click

from allotment_cli.options.lazy import LazyGroup
from allotment_cli.show.ending import ended_in_order

COMMANDS = {
    "up": (
        "allotment_cli.setup.cluster",
        "up",
        "Start local mode: NATS, API server, fake nodes, services.",
    ),
    "down": ("allotment_cli.setup.cluster", "down", "Stop local mode and all its processes."),
    "status": (
        "allotment_cli.setup.cluster",
        "status",
        "Show every service, its address, and which replica is active.",
    ),
    "demo": (
        "allotment_cli.demo.command",
        "demo",
        "Run the examples in local mode and explain them.",
    ),
    "get": (
        "allotment_cli.read.get",
        "get",
        "List nodes, pods, cards, queues, gangs or Jobs as recorded.",
    ),
    "ledger": (
        "allotment_cli.read.ledger",
        "ledger",
        "Show which pods hold how much of each card.",
    ),
    "blame": (
        "allotment_cli.read.blame",
        "blame",
        "Show which pods hold a card, and since when.",
    ),
    "usage": ("allotment_cli.read.usage", "usage", "Show how much pods held, and for how long."),
    "log": ("allotment_cli.read.log", "log", "Show the allocation log, one line per event."),
    "explain": (
        "allotment_cli.read.explain",
        "explain",
        "Explain why a pod, gang or queue runs or waits.",
    ),
    "story": (
        "allotment_cli.read.story",
        "story",
        "Show a pod's history: request, waits, placement and end.",
    ),
    "trace": (
        "allotment_cli.read.trace",
        "trace",
        "Draw a pod's story as a trace, or export it to a tracing backend.",
    ),
    "fit": (
        "allotment_cli.plan.fit",
        "command",
        "Check whether manifests would fit now, without applying them.",
    ),
    "diff": (
        "allotment_cli.read.diff",
        "diff",
        "Show what differs between two moments or two logs.",
    ),
    "wait": (
        "allotment_cli.read.wait",
        "wait",
        "Wait until a pod is placed, bound, running or gone.",
    ),
    "doctor": (
        "allotment_cli.read.doctor",
        "doctor",
        "Show the state of the cluster and its problems.",
    ),
    "policy": (
        "allotment_cli.plan.policy",
        "policy",
        "Check a scheduler configuration before it is applied.",
    ),
    "job": (
        "allotment_cli.act.job",
        "job",
        "Volcano's Jobs: run, list, view, suspend, resume, delete.",
    ),
    "queue": (
        "allotment_cli.act.queue",
        "queue",
        "Volcano's Queues: list, get, create, operate, delete.",
    ),
    "replay": (
        "allotment_cli.read.replay",
        "replay",
        "Recompute every decision and compare.",
    ),
    "inspect": (
        "allotment_cli.read.inspect_log",
        "inspect",
        "Show an exported log as web pages.",
    ),
    "simulate": (
        "allotment_cli.plan.simulate",
        "simulate",
        "Schedule a workload on simulated nodes: how full, how fragmented.",
    ),
    "bench": ("allotment_lab.bench", "bench", "Measure how fast this machine decides."),
    "nats-users": (
        "allotment_cli.setup.nats_users",
        "nats_users",
        "Print keys for the services' NATS users, as manifests.",
    ),
    "nats-setup": (
        "allotment_cli.setup.nats_setup",
        "nats_setup",
        "Create the keys and the certificate of NATS that a cluster lacks.",
    ),
    "completion": (
        "allotment_cli.options.completion",
        "completion",
        "Print a script for the shell's Tab key.",
    ),
    "version": (
        "allotment_cli.setup.version",
        "version",
        "Show the versions of what is installed.",
    ),
}


ALIASES = {"describe": "explain", "logs": "log", "jobs": "job", "queues": "queue"}
"""What fingers used to kubectl may type."""


class Allot(LazyGroup):
    """The command itself."""

    def invoke(self, ctx: click.Context) -> Any:
        with ended_in_order(ctx):
            return super().invoke(ctx)


@click.group(
    cls=Allot,
    commands=COMMANDS,
    aliases=ALIASES,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(package_name="allotment", prog_name="allot", message="%(prog)s %(version)s")
def main() -> None:
    """Shared GPUs on Kubernetes, scheduled through one log that explains itself.

    Exit codes: 0 success; 1 differences or problems found; 2 the command failed; 3 the condition
    is not met yet (`wait`, and `--exit-code` of `explain` and `fit`); 128 and a signal's number
    (130, 143): that signal stopped the command.
    """


def kubectl_allot() -> None:
    """The same command as kubectl's plugin: `kubectl allot …`."""
    main(prog_name="kubectl allot")


def kubectl_complete() -> None:
    """What kubectl runs for the Tab key after `kubectl allot`, as `kubectl_complete-allot`."""
    from allotment_cli.options.completion import kubectl_lines

    for line in kubectl_lines(main, sys.argv[1:]):
        click.echo(line)


if __name__ == "__main__":
    main()
