"""Kinds of options that several commands share."""

import math
from pathlib import Path
from typing import Any

import click


class Finite(click.FloatRange):
    """A number in a range; NaN, which no comparison refuses, is none."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value} is not in the range {self._describe_range()}.", param, ctx)
        return number


def can_be_written(ctx: click.Context, param: click.Parameter, value: Path | None) -> Path | None:
    """Refuse a file in a directory that is not there, before any work is done."""
    if value is not None and not value.absolute().parent.is_dir():
        raise click.BadParameter(f"directory {str(value.parent)!r} does not exist.", ctx, param)
    return value
