"""Reason codes by number, so that they fit a column; number 0 is "none"."""

from allotment.core import reasons

CODES = ("", *reasons.EXPLANATIONS)
NUMBER = {code: number for number, code in enumerate(CODES)}
