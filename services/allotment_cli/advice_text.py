"""What would make it fit, on a screen: of pods, of groups, and of manifests."""

from collections.abc import Sequence

from allotment.core.explain.schema import AHEAD_SHOWN, Counterfactual, Place, Quota
from allotment.core.units import bytes_text, cpu_text
from allotment_cli.output import heading

NOW = "What would make it fit now (each recomputed, one change at a time)"
CLOSEST = "No single change is enough; with these more of it would fit (each recomputed)"
EVER = "What would fit these nodes if they were empty (each recomputed, one change at a time)"


def advice_lines(found: Sequence[Counterfactual], *, never: bool = False) -> list[str]:
    """A heading and a line a change; nothing without any."""
    if not found:
        return []
    width = max(len(each.text) for each in found)
    lines = [f"  {each.text:<{width}}  {_fit(each)}" for each in found]
    return ["", heading(EVER if never else NOW if _is_enough(found[0]) else CLOSEST), *lines]


def _is_enough(found: Counterfactual) -> bool:
    """Whether all that is asked for fits then. The first of several is the best."""
    return found.members_fit is None or found.members_fit == found.members


def _fit(found: Counterfactual) -> str:
    if found.members_fit is not None:
        return f"{found.members_fit} of {found.members} pods fit"
    return f"{found.nodes_fit} node{'s' * (found.nodes_fit != 1)}"


def quota_text(quota: Quota) -> str:
    """``queue team-a: 2 of 2 volcano.sh/vgpu-number held, wants 1``."""
    held, promised, most, wants = (
        amount_text(quota.resource, amount)
        for amount in (quota.held, quota.promised, quota.most, quota.wants)
    )
    also = f", {promised} promised to others" if quota.promised else ""
    return f"queue {quota.queue}: {held} of {most} {quota.resource} held{also}, wants {wants}"


def amount_text(resource: str, amount: int | None) -> str:
    """An amount of Volcano's as people write it; what is not limited is empty."""
    if amount is None:
        return ""
    if resource == "memory":
        return bytes_text(amount)
    if resource == "cpu":
        return cpu_text(amount)
    if resource == "pods":
        return str(amount)
    whole, rest = divmod(amount, 1000)
    return f"{whole}.{rest:03}".rstrip("0") if rest else str(whole)


def place_text(place: Place, among: str) -> str:
    text = f"position {place.position} of {place.length} {among}"
    if place.ahead:
        more = place.position - 1 - len(place.ahead)
        also = f" and {more} more" if more > 0 else ""
        text += f"; ahead: {', '.join(place.ahead[:AHEAD_SHOWN])}{also}"
    return text
