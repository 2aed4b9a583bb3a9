"""`--at`, `--since` and their like, as people write them."""

from allotment.adapters.service.moments import FORMS, At, MomentError
from allotment.adapters.service.moments import parse as parse_moment
from allotment.core.errors import AllotError


def parse(moment: str | At, now_ms: int, option: str = "--at") -> At:
    """Read one moment, as `allotment.adapters.service.moments.parse` does, unless it is read.

    Raises `AllotError` naming the option, the text and the forms that are right.
    """
    if not isinstance(moment, str):
        return moment
    try:
        return parse_moment(moment, now_ms)
    except MomentError as error:
        raise AllotError(f"{option} {error}", f"give {FORMS}") from None
