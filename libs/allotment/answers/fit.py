"""Whether manifests would fit, and what would make them fit."""

from collections.abc import Sequence

import msgspec

from allotment.adapters.service.moments import At
from allotment.answers.folding import fold_at
from allotment.answers.manifests import Made, Placed, read
from allotment.answers.source import Origin, Source
from allotment.answers.surroundings import surroundings
from allotment.core.errors import AllotError
from allotment.core.explain.fitting import Fit
from allotment.core.explain.fitting import fit as fit_pods
from allotment.core.ledger.state import apply


async def fit(
    source: Source, origin: Origin, documents: Sequence[Placed], moment: str | At | None
) -> Fit:
    """Whether pods of manifests would fit at a moment (None: now), each next to those before it.

    `origin` is where the source is from: an API server that it names is asked about namespaces and
    volumes. Raises `AllotError` for manifests that make no pods, and for mistakes in them.
    """
    folded = await fold_at(source, moment)
    state = folded.state
    around = await surroundings(
        origin,
        [each for _, each in documents],
        state,
        source.screen,
        is_past=moment is not None,
    )
    seq, made = state.seq, read(documents, state, around)
    if not made.uids:
        raise AllotError(_without_pods(made), "give manifests of pods, or of what makes pods")
    for event in made.events:
        apply(state, event, state.seq + 1)
    with source.screen.waiting("trying the pods, and what would make others fit"):
        found = fit_pods(state, made.uids, seq, folded.time_ms, made.skipped)
    return msgspec.structs.replace(found, assumed=tuple(around.assumed))


def _without_pods(made: Made) -> str:
    names = f": {', '.join(made.skipped)}" if made.skipped else ""
    return f"the manifests make no pods{names}"
