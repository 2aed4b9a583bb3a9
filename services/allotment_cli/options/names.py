"""Names of pods, groups and nodes as users type them."""

import os

import click

from allotment.answers import local
from allotment.answers.kubeconfig import USUAL_NAMESPACE, Choice, files_of, namespace_of
from allotment.core.errors import AllotError
from allotment_cli.options.source import chosen_cluster

KINDS = {
    **dict.fromkeys(("pod", "pods", "po"), "pod"),
    **dict.fromkeys(("gang", "group", "podgroup", "podgroups", "pg"), "group"),
    **dict.fromkeys(("job", "jobs", "vcjob", "vj"), "group"),
    **dict.fromkeys(("node", "nodes", "no"), "node"),
    **dict.fromkeys(("queue", "queues", "q"), "queue"),
}
"""Words for kinds as users type them before a slash. A Job is asked for by its group."""


def pod_name(text: str, kind: str = "pod", namespace: str | None = None) -> tuple[str, str]:
    """``ns/name``, or ``name`` in the namespace of `-n`, or else in the usual one.

    A word for the kind may stand before it, as in ``pod/name``. Raises `AllotError` for all else.
    """
    word, slash, rest = text.partition("/")
    if slash and word in KINDS:
        if KINDS[word] != kind:
            raise AllotError(f"{text} is no {kind}", f"give {kind}/NAME, or NAMESPACE/NAME")
        text = rest
    elif text in KINDS:
        raise AllotError(f"{text} alone names no {kind}", f"give {text}/NAME")
    given, slash, name = text.rpartition("/")
    if slash and namespace is not None and given != namespace:
        raise AllotError(
            f"{kind} {text} is not in namespace {namespace}, which -n names",
            "give the namespace once",
        )
    space = given if slash else namespace or usual_namespace()
    if not space or not name or "/" in space:
        raise AllotError(
            f"{text!r} is not the name of a {kind}",
            "give NAMESPACE/NAME, or NAME in the default namespace, or NAME with -n NAMESPACE",
        )
    return space, name


def usual_namespace() -> str:
    """Where a name is for which no namespace is given: as the kubeconfig of the cluster says that
    the running command reads. An exported log, and local mode if nothing else is said, know none.
    """
    ctx = click.get_current_context(silent=True)
    if ctx is None or ctx.params.get("file") is not None:
        return USUAL_NAMESPACE
    chosen = chosen_cluster() or Choice(ctx.params.get("kubeconfig"), ctx.params.get("context"))
    asks_kubernetes = "kubeconfig" in ctx.params  # there KUBECONFIG comes before local mode
    is_said = ctx.params.get("nats") or (asks_kubernetes and os.environ.get("KUBECONFIG"))
    if chosen == Choice() and not is_said:
        home = ctx.params.get("home")
        if home is not None and local.is_running(home):
            return namespace_of([local.kubeconfig(home)])
    return namespace_of(files_of(chosen.kubeconfig), chosen.context)
