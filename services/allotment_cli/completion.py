"""`allot completion`, and the names that it completes: those of the log, if it answers soon."""

from collections.abc import Callable, Iterable

import anyio
import click
from click.shell_completion import get_completion_class

from allotment.core.ledger.model import ClusterState
from allotment_cli.errors import CliError
from allotment_cli.names import usual_namespace
from allotment_cli.output import emit

SHELLS = ("bash", "zsh", "fish")
PROGRAM = "allot"
VARIABLE = "_ALLOT_COMPLETE"
LINES = {
    "bash": "source <(allot completion bash)     # in ~/.bashrc; bash 4.4 or newer",
    "zsh": "source <(allot completion zsh)      # in ~/.zshrc, after compinit",
    "fish": "allot completion fish | source      # in ~/.config/fish/config.fish",
}
WITHIN_S = 2.0
"""Nobody waits longer for a name."""


@click.command(
    epilog="\b\n" + "\n".join(LINES.values()),
)
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print a script that lets a shell complete commands, options, and the names of pods, nodes and
    queues that the log knows.
    """
    found = get_completion_class(shell)
    assert found is not None  # click has one for each of SHELLS
    root = ctx.find_root().command
    emit(found(root, {}, PROGRAM, VARIABLE).source().rstrip("\n").split("\n"))


def pods(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Pods of the namespace of -n, or of the usual one; those of others with theirs before them."""
    space = ctx.params.get("namespace")
    wanted = space or usual_namespace()

    def names(state: ClusterState) -> Iterable[str]:
        for pod in state.pods.values():
            fact = pod.fact
            if space is None and "/" in incomplete:
                yield f"{fact.namespace}/{fact.name}"
            elif fact.namespace == wanted:
                yield fact.name
            elif space is None:
                yield f"{fact.namespace}/{fact.name}"

    return _beginning(ctx, names, incomplete)


def nodes(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Nodes by name."""
    return _beginning(ctx, lambda state: state.nodes, incomplete)


def queues(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Queues by name."""
    return _beginning(ctx, lambda state: state.queues, incomplete)


def listed(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """What `get` lists."""
    kind = pods if ctx.command.name == "pods" else nodes
    return kind(ctx, param, incomplete)


def _beginning(
    ctx: click.Context, names: Callable[[ClusterState], Iterable[str]], incomplete: str
) -> list[str]:
    """The names that begin so. None if the log does not answer: a completion says nothing else."""
    try:
        state = anyio.run(_state, ctx)
    except (CliError, OSError, TimeoutError, ExceptionGroup):
        return []
    return sorted({name for name in names(state) if name.startswith(incomplete)})


async def _state(ctx: click.Context) -> ClusterState:
    from allotment_cli.folding import fold
    from allotment_cli.source import Origin, open_source

    asked = ctx.params
    with anyio.fail_after(WITHIN_S):
        async with open_source(Origin(asked["home"], asked["nats"], asked["file"])) as source:
            return (await fold(source, None)).state
