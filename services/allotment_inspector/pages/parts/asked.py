"""What addresses and queries say, read."""

_DIGITS_MAX = 18
"""So many fit into a sequence."""


def natural(text: str) -> int | None:
    """A natural number in digits, None for any other text."""
    is_natural = text.isascii() and text.isdigit() and len(text) <= _DIGITS_MAX
    return int(text) if is_natural else None
