"""`allot completion`, and what the Tab key completes: names from the log, if it answers soon."""

import io
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import redirect_stderr
from pathlib import Path
from typing import Any

import anyio
import click
from click.shell_completion import CompletionItem, ShellComplete, get_completion_class

from allotment.answers.source import DEFAULT_HOME, Origin
from allotment.core.ledger.ledger import Card
from allotment.core.ledger.model import ClusterState
from allotment_cli.options.names import KINDS, usual_namespace
from allotment_cli.options.source import choose_cluster, open_source
from allotment_cli.show.output import emit

SHELLS = ("bash", "zsh", "fish")
PROGRAM = "allot"
VARIABLE = "_ALLOT_COMPLETE"
LINES = {
    "bash": "source <(allot completion bash)     # in ~/.bashrc; bash 4.4 or newer",
    "zsh": "source <(allot completion zsh)      # in ~/.zshrc, after compinit",
    "fish": "allot completion fish | source      # in ~/.config/fish/config.fish",
}
WITHIN_S = 2.0
"""How long a Tab may wait for the log."""
FILE = CompletionItem("", type="file")
"""Tells the shell to complete file names. The scripts want it before other items."""
_NO_FILES, _FILES, _DIRECTORIES = 4, 0, 16
"""What kubectl shall do besides: its ShellCompDirective."""

Completed = list[CompletionItem]
Completer = Callable[[click.Context, click.Parameter | None, str], Completed]


@click.command(
    epilog="\b\n" + "\n".join(LINES.values()),
)
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print a script that lets a shell complete commands, options, and the names of pods, nodes,
    queues and all else that the log knows.

    kubectl completes `kubectl allot` by itself, if kubectl_complete-allot is in the PATH.
    """
    found = get_completion_class(shell)
    assert found is not None  # click has one for each of SHELLS
    root = ctx.find_root().command
    emit(found(root, {}, PROGRAM, VARIABLE).source().rstrip("\n").split("\n"))


def kubectl_lines(root: click.Command, words: list[str]) -> Iterator[str]:
    """What kubectl expects of `kubectl_complete-allot WORD…`, whose last word is incomplete: a line
    per completion, and last a directive.
    """
    *before, incomplete = words or [""]
    shell = ShellComplete(root, {}, PROGRAM, VARIABLE)
    found = shell.get_completions(before, incomplete)
    for item in found:
        if item.type == "plain":
            yield f"{item.value}\t{item.help}" if item.help else item.value
    types = {item.type for item in found}
    directive = _FILES if "file" in types else _DIRECTORIES if "dir" in types else _NO_FILES
    yield f":{directive}"


def words(*known: str, files: bool = False) -> Completer:
    """A completer of words that no log is needed for, and of files."""

    def complete(ctx: click.Context, param: click.Parameter | None, incomplete: str) -> Completed:
        lower = incomplete.lower()
        found = [CompletionItem(word) for word in known if word.lower().startswith(lower)]
        return [FILE] * files + found

    return complete


files = words(files=True)
"""Completes file names."""


def _known(names: Callable[[ClusterState], Iterable[str]]) -> Completer:
    """A completer of names that belong to no namespace."""

    def complete(ctx: click.Context, param: click.Parameter | None, incomplete: str) -> Completed:
        return _from_log(ctx, names, incomplete)

    return complete


def _namespaced(keys: Callable[[ClusterState], Iterable[tuple[str, str]]]) -> Completer:
    """A completer of names in the namespace of -n, or in the usual one; those of other namespaces
    with theirs before them. A word for the kind may stand before the name, as in ``pod/name``.
    """

    def complete(ctx: click.Context, param: click.Parameter | None, incomplete: str) -> Completed:
        kind, slash, rest = incomplete.partition("/")
        prefix, begun = (f"{kind}/", rest) if slash and kind in KINDS else ("", incomplete)
        space = None if ctx.params.get("all_namespaces") else ctx.params.get("namespace")

        def names(state: ClusterState) -> Iterable[str]:
            usual = space or usual_namespace()
            for namespace, name in keys(state):
                if space is None and (namespace != usual or "/" in begun):
                    yield f"{prefix}{namespace}/{name}"
                elif namespace == usual:
                    yield prefix + name

        return _from_log(ctx, names, incomplete)

    return complete


def _pods(state: ClusterState) -> Iterator[tuple[str, str]]:
    for pod in state.pods.values():
        yield pod.fact.namespace, pod.fact.name


def _jobs(state: ClusterState) -> Iterator[tuple[str, str]]:
    """The Jobs whose PodGroups the log knows."""
    for key, group in state.groups.items():
        if group.fact is not None and group.fact.owner and key.endswith(f"-{group.fact.owner}"):
            yield group.fact.namespace, group.fact.name.removesuffix(f"-{group.fact.owner}")


def _groups(state: ClusterState) -> Iterator[tuple[str, str]]:
    yield from _jobs(state)
    for key in state.groups:
        namespace, _, name = key.partition("/")
        yield namespace, name


def _namespaces(state: ClusterState) -> Iterator[str]:
    for namespace, _ in (*_pods(state), *_groups(state)):
        yield namespace


def _holders(state: ClusterState) -> Iterator[str]:
    """As `--held-by` takes them: a namespace, or one pod of it."""
    for pod in state.pods.values():
        if pod.allocation is not None:
            yield pod.fact.namespace
            yield f"{pod.fact.namespace}/{pod.fact.name}"


def _cards(spelled: Callable[[Card], str]) -> Callable[[ClusterState], Iterator[str]]:
    """Nodes, and their cards behind a slash."""

    def names(state: ClusterState) -> Iterator[str]:
        for node in state.nodes.values():
            yield node.name
            for ledger in node.ledgers.values():
                yield from (f"{node.name}/{spelled(card)}" for card in ledger.cards)

    return names


def _card_name(card: Card) -> str:
    from allotment.core.explain.rows.views import card_name

    return card_name(card)


def _models(state: ClusterState) -> Iterator[str]:
    """The last words of models: `--model` takes any part of one, and a shell splits words."""
    for card in _all_cards(state):
        yield from card.fact.model.split()[-1:]


def _modes(state: ClusterState) -> Iterator[str]:
    for card in _all_cards(state):
        yield card.fact.mode


def _all_cards(state: ClusterState) -> Iterator[Card]:
    for node in state.nodes.values():
        for ledger in node.ledgers.values():
            yield from ledger.cards


def _labels(key: str) -> Callable[[ClusterState], Iterator[str]]:
    return lambda state: (node.labels.get(key, "") for node in state.nodes.values())


pods = _namespaced(_pods)
groups = _namespaced(_groups)
jobs = _namespaced(_jobs)
nodes = _known(lambda state: state.nodes)
queues = _known(lambda state: state.queues)
namespaces = _known(_namespaces)
holders = _known(_holders)
cards = _known(_cards(_card_name))
card_indexes = _known(_cards(lambda card: str(card.fact.index)))
models = _known(_models)
modes = _known(_modes)


def zones(label: str) -> Completer:
    """A completer of the values that nodes have for a label."""
    return _known(_labels(label))


def _from_log(
    ctx: click.Context, names: Callable[[ClusterState], Iterable[str]], incomplete: str
) -> Completed:
    """The names that begin so. None if the log does not answer, for whatever reason: a Tab must not
    print errors over the line that is being typed.
    """
    try:
        with ctx.scope(cleanup=False), redirect_stderr(io.StringIO()):
            state = anyio.run(_state, _origin(ctx.params))
            found = sorted({name for name in names(state) if name and name.startswith(incomplete)})
    except Exception:
        return []
    return [CompletionItem(name) for name in found]


def _origin(asked: dict[str, Any]) -> Origin:
    """Where the options say that the log is; a command without them reads the usual one."""
    if asked.get("kubeconfig") or asked.get("context"):  # of a command that asks Kubernetes
        choose_cluster(asked["kubeconfig"], asked["context"])
    home = asked.get("home") or os.environ.get("ALLOT_HOME") or DEFAULT_HOME
    nats = asked.get("nats") or os.environ.get("ALLOT_NATS_URL")
    return Origin(Path(home).expanduser(), nats, asked.get("file"))


async def _state(origin: Origin) -> ClusterState:
    from allotment.answers.folding import fold

    with anyio.fail_after(WITHIN_S):
        async with open_source(origin) as source:
            return (await fold(source, None)).state
