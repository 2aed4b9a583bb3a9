"""The policies that `--policy` names: words of the scheduler configuration, dice, or a file."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from allotment.core.config.policy import PolicyError, parse
from allotment.core.errors import AllotError
from allotment.core.placement.policies import POLICIES
from allotment_lab.policies import COMPARED
from allotment_lab.simulate.texts import read_text
from allotment_proto.facts import Policy

RANDOM = "random"
RECORDED = "recorded"
DEFAULT = "binpack"
NAMES = (*POLICIES, *COMPARED, RANDOM)
KEPT = (*NAMES, RECORDED)
WORDS = f"{', '.join(NAMES)}, {RECORDED} (that of a log, with --file)"
"""All that can be given besides a file, for messages."""


class Chosen(NamedTuple):
    """A policy by the name that the user gave it. `is_random`: dice choose among what fits."""

    name: str
    policy: Policy
    is_random: bool = False

    @property
    def is_of_product(self) -> bool:
        """Whether services can place by it; else it is there for comparison."""
        return not self.is_random and self.policy.device_policy in POLICIES


def choose(
    words: Sequence[str], recorded: Policy | None, warn: Callable[[str], None]
) -> list[Chosen]:
    """The policies of all `--policy` options; without any the recorded one, or binpack. One that is
    called by its name chooses cards, and leaves all else as recorded.

    `warn` gets what a file says without effect. Raises `AllotError` for a word that is neither a
    name nor a file.
    """
    given = words or ((RECORDED,) if recorded is not None else (DEFAULT,))
    return [_choose(word, recorded, warn) for word in dict.fromkeys(given)]


def as_recorded(policy: Policy) -> Chosen:
    """The policy of a log."""
    return Chosen(RECORDED, policy)


def _choose(word: str, recorded: Policy | None, warn: Callable[[str], None]) -> Chosen:
    names = Policy().scheduler_names if recorded is None else recorded.scheduler_names
    if word == RECORDED and recorded is not None:
        return as_recorded(recorded)
    if word in NAMES:
        is_random = word == RANDOM
        policy = msgspec.structs.replace(
            Policy() if recorded is None else recorded,
            device_policy="none" if is_random else word,
            device_weight=1,
            host_policy="none",
            host_weight=0,
            fit_weight=0,
            mix=(),
        )
        return Chosen(word, policy, is_random)
    return Chosen(word, _read(word, names, warn))


def _read(path: str, scheduler_names: tuple[str, ...], warn: Callable[[str], None]) -> Policy:
    if not os.path.exists(path):
        if path == RECORDED:
            raise AllotError("--policy recorded is that of a log", "give --file")
        raise AllotError(
            f"--policy {path!r} is neither a policy nor a file that can be read",
            f"give one of {WORDS}, or a scheduler configuration like volcano-scheduler.conf",
        )
    try:
        parsed = parse(read_text(Path(path)), path, scheduler_names)
    except PolicyError as error:
        first, *more = error.problems
        raise AllotError(first, "correct the configuration", more) from None
    for warning in parsed.warnings:
        warn(f"warning: {warning}")
    return parsed.policy
