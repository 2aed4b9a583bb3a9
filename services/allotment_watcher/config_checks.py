"""Tells the log what is wrong with a configuration, and when that is over: the pure part."""

from collections.abc import Callable, Iterable, Sequence

from allotment.core.ledger.model import ClusterState
from allotment_proto.events import SCHEDULER_CONFIG, ConfigurationChecked
from allotment_proto.facts import Problem

INVALID_POLICY = "InvalidSchedulerConfig"
WITHOUT_EFFECT = "ConfigWithoutEffect"
ALL = {SCHEDULER_CONFIG: "; allot policy check shows all"}
"""Where the rest of a list is to be had."""
PROBLEMS_MAX = 20
"""So many problems of one text are reported: records and readers have limits."""


class ConfigChecks:
    """What was reported to the log about each kind of configuration; `tell` appends."""

    def __init__(
        self, state: ClusterState, tell: Callable[[Iterable[ConfigurationChecked]], None]
    ) -> None:
        self._told = {kind: event for kind, (_, event) in state.config_checks.items()}
        self._tell = tell

    def checked(
        self,
        kind: str,
        source: str,
        problems: Sequence[Problem],
        warnings: Sequence[Problem] = (),
    ) -> None:
        """The newest text was read, with these problems; they are reported if they are news."""
        told = self._told.pop(kind, None)
        if not problems and not warnings:
            if told is not None:
                self._tell([ConfigurationChecked(kind=kind, source=source)])
            return
        event = ConfigurationChecked(
            kind=kind,
            source=source,
            problems=_shown(kind, problems),
            warnings=_shown(kind, warnings),
        )
        self._told[kind] = event
        if event != told:
            self._tell([event])


def policy_problems(
    source: str, problems: Iterable[str], code: str = INVALID_POLICY
) -> tuple[Problem, ...]:
    """The mistakes in a scheduler configuration, each of which begins with its place."""
    found = []
    for text in problems:
        place, _, message = text.partition(": ")
        if not message or not place.startswith(source):
            place, message = source, text
        found.append(Problem(code, f"{place}:", message))
    return tuple(found)


def _shown(kind: str, problems: Sequence[Problem]) -> tuple[Problem, ...]:
    shown = tuple(problems[:PROBLEMS_MAX])
    more = len(problems) - len(shown)
    if more:
        last = problems[PROBLEMS_MAX]
        shown += (Problem(last.code, last.place, f"and {more} more{ALL.get(kind, '')}"),)
    return shown
