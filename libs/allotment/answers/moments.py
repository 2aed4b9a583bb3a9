"""`--at`, `--since` and their like, as people write them."""

from allotment.adapters.service.moments import FORMS, At, MomentError
from allotment.adapters.service.moments import parse as parse_moment
from allotment.core.errors import AllotError


def parse(text: str, now_ms: int, option: str = "--at") -> At:
    """Read one moment, as `allotment.adapters.service.moments.parse` does.

    Raises `AllotError` naming the option, the text and the forms that are right.
    """
    try:
        return parse_moment(text, now_ms)
    except MomentError as error:
        raise AllotError(f"{option} {error}", f"give {FORMS}") from None
