"""The policies that `--policy` names: words of the scheduler configuration, dice, or a file."""

from pathlib import Path
from typing import NamedTuple

from allotment.core.policies import POLICIES
from allotment.core.policy import PolicyError, parse
from allotment_cli.errors import CliError
from allotment_cli.output import note
from allotment_proto.facts import Policy

RANDOM = "random"
RECORDED = "recorded"
DEFAULT = "binpack"
NAMES = (*POLICIES, RANDOM)


class Chosen(NamedTuple):
    """A policy by the name that the user gave it. `is_random`: dice choose among what fits."""

    name: str
    policy: Policy
    is_random: bool = False


def choose(words: tuple[str, ...], recorded: Policy | None) -> list[Chosen]:
    """The policies of all `--policy` options; without any the recorded one, or binpack.

    Raises `CliError` for a word that is neither a name nor a file.
    """
    given = words or ((RECORDED,) if recorded is not None else (DEFAULT,))
    return [_choose(word, recorded) for word in dict.fromkeys(given)]


def _choose(word: str, recorded: Policy | None) -> Chosen:
    names = Policy().scheduler_names if recorded is None else recorded.scheduler_names
    if word == RECORDED and recorded is not None:
        return Chosen(word, recorded)
    if word in NAMES:
        is_random = word == RANDOM
        policy = Policy(
            scheduler_names=names,
            device_policy="none" if is_random else word,
            device_weight=1,
            host_policy="none",
            host_weight=0,
        )
        return Chosen(word, policy, is_random)
    return Chosen(word, _read(word, names))


def _read(path: str, scheduler_names: tuple[str, ...]) -> Policy:
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        what = f"--policy {path!r} is neither a policy nor a file that can be read"
        known = ", ".join(NAMES)
        if path == RECORDED:
            raise CliError("--policy recorded is that of a log", "give --file") from None
        raise CliError(
            what, f"give one of {known}, or a scheduler configuration like volcano-scheduler.conf"
        ) from None
    try:
        parsed = parse(text, path, scheduler_names)
    except PolicyError as error:
        raise CliError("\n".join(error.problems), "mend the configuration") from None
    for warning in parsed.warnings:
        note(f"warning: {warning}")
    return parsed.policy
