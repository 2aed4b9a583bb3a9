"""`allot fit`: would these manifests fit now, where, and if not, what would make them fit."""

from collections.abc import Iterable, Iterator, Sequence

import anyio
import click
import msgspec

from allotment.adapters.service.moments import moment_text
from allotment.answers.fit import fit
from allotment.answers.manifests import Placed, documents_of
from allotment.answers.source import Origin
from allotment.core.explain.fitting import Fit, FitPod
from allotment.core.explain.rows.words import wants_text
from allotment_cli.options import completion
from allotment_cli.options.names import usual_namespace
from allotment_cli.options.params import at_option, output_option
from allotment_cli.options.source import named, open_source, source_options
from allotment_cli.show import explain_sections as sections
from allotment_cli.show.advice_text import advice_lines
from allotment_cli.show.alike import grouped, many, places
from allotment_cli.show.output import DOCUMENTS, Prose, emit, emit_document, heading, table

PENDING_EXIT = 3
LABEL = 11
REFUSED_SHOWN = 3
NAMES_SHOWN = 3


@click.command("fit")
@click.option(
    "-f",
    "--filename",
    "files",
    multiple=True,
    required=True,
    metavar="FILE",
    shell_complete=completion.files,
    help="Manifests with pods, or with what makes pods; - is stdin. Give it as often as you like.",
)
@click.option(
    "-n",
    "--namespace",
    shell_complete=completion.namespaces,
    help="Namespace of manifests that name none.",
)
@source_options
@at_option
@click.option("--all", "all_", is_flag=True, help="Explain every pod that does not fit.")
@click.option("--exit-code", is_flag=True, help="Exit 0 if all pods fit, 3 if some do not.")
@output_option(*DOCUMENTS)
@click.pass_context
def command(
    ctx: click.Context,
    files: tuple[str, ...],
    namespace: str | None,
    origin: Origin,
    at: str | None,
    all_: bool,
    exit_code: bool,
    output: str,
) -> None:
    """Ask whether manifests would fit, without applying them.

    Pods are tried in their order, each next to those before it, as a round would. Queues that
    namespaces name, PersistentVolumeClaims and what they need are read from the manifests, and from
    the API server where it is known which one (local mode's, --context, --kubeconfig); what neither
    tells is taken for granted and listed.
    """
    documents = documents_of(files, namespace or usual_namespace())
    found = anyio.run(_fit, origin, documents, at)
    if output in DOCUMENTS:
        emit_document(found, output)
    else:
        emit(fit_lines(found, everything=all_))
    if exit_code and not all(pod.fits for pod in found.pods):
        ctx.exit(PENDING_EXIT)


async def _fit(origin: Origin, documents: Sequence[Placed], at: str | None) -> Fit:
    async with open_source(origin) as source:
        return await fit(source, named(origin), documents, at)


def fit_lines(found: Fit, *, everything: bool = False) -> list[str]:
    """The whole screen: a row for each shape of pods, or with `everything` for each pod; then why
    those wait that find no place.
    """
    fitting = sum(pod.fits for pod in found.pods)
    pods = f"pod{'s' * (len(found.pods) != 1)}"
    lines = [f"{'Fit':<{LABEL}}{fitting} of {len(found.pods)} {pods} fit now"]
    lines.append(f"{'As of':<{LABEL}}seq {found.as_of.seq}, {moment_text(found.as_of.time_ms)}")
    if found.skipped:
        lines.append(_field("Skipped", ", ".join(found.skipped)))
    lines += [_field("Assumed", text) for text in found.assumed]
    alike = [[pod] for pod in found.pods] if everything else grouped(found.pods, _shape)
    rows = [_row(pods) for pods in alike]
    lines += ["", *table(["POD", "NODE", "CARDS", "NODES", "WANTS"], rows)]
    refused = _alike(pod for pod in found.pods if not pod.fits)
    shown = refused if everything else refused[:REFUSED_SHOWN]
    for names, pod in shown:
        lines += ["", *_why(names, pod)]
    if len(shown) < len(refused):
        more = sum(len(names) for names, _ in refused[REFUSED_SHOWN:])
        lines += ["", f"{more} more do not fit: --all"]
    return lines


def _shape(pod: FitPod) -> tuple[object, ...]:
    return pod.namespace, pod.fits, msgspec.json.encode(pod.request)


def _row(pods: Sequence[FitPod]) -> list[str]:
    """Pods that ask for the same. `NODES` is how many nodes the first of them could choose from."""
    first = pods[0]
    nodes = {pod.node for pod in pods}
    devices = dict.fromkeys(device for pod in pods for device in pod.devices)
    return [
        many([f"{pod.namespace}/{pod.name}" for pod in pods]),
        first.node if len(pods) == 1 else places(pod.node for pod in pods),
        ",".join(devices) if len(nodes) == 1 else "",
        f"{first.nodes_fit}/{first.nodes}" if first.nodes else "",
        wants_text(first.request),
    ]


def _alike(pods: Iterable[FitPod]) -> list[tuple[list[str], FitPod]]:
    """Pods of which the same is to be said, together."""
    found: list[tuple[list[str], FitPod]] = []
    for pod in pods:
        bare = msgspec.structs.replace(pod, namespace="", name="")
        name = f"{pod.namespace}/{pod.name}"
        if found and found[-1][1] == bare:
            found[-1][0].append(name)
        else:
            found.append(([name], bare))
    return found


def _why(names: Sequence[str], pod: FitPod) -> Iterator[str]:
    never = pod.fits_empty_cluster is False
    one = len(names) == 1
    can = "can never fit on these nodes" if never else f"do{'es' * one} not fit now"
    shown = ", ".join(names[:NAMES_SHOWN])
    more = f" and {len(names) - NAMES_SHOWN} more" if len(names) > NAMES_SHOWN else ""
    yield heading(Prose(f"{shown}{more} {can}", 2))
    if pod.problem:
        yield _field("Problem", pod.problem)
    elif pod.cause:
        yield _field("Cause", pod.cause)
    for text in _because(pod):
        yield _field("Because", text)
    for lack in pod.lacks:  # after a queue's refusal, the next obstacle
        yield _field("Because" if pod.refused is None else "Nodes", lack.text)
    if pod.funnel and pod.funnel[-1].left < pod.funnel[0].left:
        yield from sections.funnel(pod.funnel, pod.request)
    yield from advice_lines(pod.counterfactuals, never=never)


def _because(pod: FitPod) -> Iterator[str]:
    yield from (quota.text for quota in pod.quota)
    if pod.refused is not None and not pod.quota:
        yield pod.refused.message
    yield from pod.notes


def _field(label: str, text: str) -> str:
    return Prose(f"{label:<{LABEL}}{text}", LABEL)
