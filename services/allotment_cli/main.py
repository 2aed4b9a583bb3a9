"""The `allot` command. Each subcommand is imported only when it is called: start-up stays short."""

from typing import Any

import click

from allotment_cli.ending import ended_in_order
from allotment_cli.lazy import LazyGroup

COMMANDS = {
    "up": ("allotment_cli.cluster", "up", "Start local mode: NATS, API server, fake nodes, all."),
    "down": ("allotment_cli.cluster", "down", "Stop local mode; no process is left."),
    "status": ("allotment_cli.cluster", "status", "What runs in local mode, with every address."),
    "demo": ("allotment_cli.demo", "demo", "Local mode, the examples, explanations, a replay."),
    "get": ("allotment_cli.get", "get", "Nodes, pods or cards as the log knows them."),
    "ledger": ("allotment_cli.ledger", "ledger", "The card map: who holds how much of which card."),
    "usage": ("allotment_cli.usage", "usage", "Who held how much, and for how long."),
    "log": ("allotment_cli.log", "log", "The allocation log, one line an event."),
    "explain": ("allotment_cli.explain", "explain", "Why a pod is where it is, or a gang waits."),
    "doctor": ("allotment_cli.doctor", "doctor", "What somebody should look at."),
    "job": (
        "allotment_cli.job",
        "job",
        "Volcano's Jobs: run, list, view, suspend, resume, delete.",
    ),
    "queue": (
        "allotment_cli.queue",
        "queue",
        "Volcano's Queues: list, get, create, operate, delete.",
    ),
    "replay": ("allotment_cli.replay", "replay", "Make every decision again and compare."),
    "simulate": (
        "allotment_lab.simulate.command",
        "simulate",
        "Schedule a workload on made-up nodes: how full, how fragmented.",
    ),
    "bench": ("allotment_lab.bench", "bench", "Measure how fast this machine decides."),
    "nats-users": (
        "allotment_cli.nats_users",
        "nats_users",
        "Make keys for the services' NATS users, as manifests.",
    ),
    "version": ("allotment_cli.version", "version", "Versions of what is installed."),
}


class Allot(LazyGroup):
    """The command itself."""

    def invoke(self, ctx: click.Context) -> Any:
        with ended_in_order(ctx):
            return super().invoke(ctx)


@click.group(cls=Allot, commands=COMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Shared GPUs on Kubernetes, scheduled through one log that explains itself.

    Exit codes: 0 the question was answered; 1 differences were found; 2 it could not be answered;
    130, 143 and the like: it was stopped by a signal (128 and its number).
    """


if __name__ == "__main__":
    main()
