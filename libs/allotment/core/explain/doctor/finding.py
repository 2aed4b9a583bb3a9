"""One problem, and the words that the files of this room share."""

import re
from collections.abc import Iterable, Sequence

import msgspec

from allotment_proto.events import DEVICE_CONFIG, SCHEDULER_CONFIG, PodObserved

ERROR, WARNING = "error", "warning"
PLATFORM, TENANT = "platform", "tenant"
"""Whether the problem is one of the people who run the cluster (platform), or of the owners of pods
whose request, queue or group does not allow what they want (tenant).
"""
_Natural = list[tuple[bool, int, str]]
LOG, ANNOTATION, PLUGIN = "log", "annotation", "plugin"
"""The sources that can be wrong."""
_FIRST: tuple[str | tuple[str, ...], ...] = (
    "service ",
    "stream ",
    (f"{SCHEDULER_CONFIG} configuration ", f"{DEVICE_CONFIG} configuration "),
)
"""The prefixes of subjects that come first."""
_PODS_NAMED = 3
PODS_MAX = 100
"""At most this many pods are listed in JSON; the text names `_PODS_NAMED`."""


class Finding(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One problem: whose it is (`PLATFORM`, `TENANT`), how bad (`ERROR`: something is rejected,
    oversold or stopped because of it), what, where, and what to do next.

    `seq` is the record to look at first, 0 if there is none; `since` is when it began (RFC 3339),
    empty if unknown. `pods` are the pods that it affects, the first `PODS_MAX`, `pods_total` how
    many there are, `namespaces` those of all of them, and `never_start` how many of them cannot
    start as they are. `blame` says which is wrong where log, API server and device plugin differ:
    ``log``, ``annotation`` or ``plugin``. Of a problem of a node, `place` says where it was found,
    and `card` is the id of the card that it is about.
    """

    severity: str
    code: str
    subject: str
    message: str
    remedy: str
    seq: int = 0
    since: str = ""
    pods: tuple[str, ...] = ()
    pods_total: int = 0
    never_start: int = 0
    blame: str = ""
    kind: str = PLATFORM
    namespaces: tuple[str, ...] = ()
    place: str = ""
    card: str = ""


def in_order(findings: Iterable[Finding]) -> list[Finding]:
    """Problems of the platform first, then those of tenants by namespace; each with errors first.

    Of errors and of warnings, services come first and then configurations, because other problems
    may follow from them; then by code and subject.
    """
    return sorted(findings, key=_rank)


def _rank(finding: Finding) -> tuple[bool, tuple[str, ...], bool, int, str, _Natural, _Natural]:
    subject, is_tenants = finding.subject, finding.kind == TENANT
    first = next((n for n, word in enumerate(_FIRST) if subject.startswith(word)), len(_FIRST))
    return (
        is_tenants,
        finding.namespaces if is_tenants else (),
        finding.severity != ERROR,
        first,
        finding.code,
        _natural(subject),
        _natural(finding.message),
    )


def _natural(text: str) -> _Natural:
    """Sorts numbers within a text by their value: line 2 comes before line 10."""
    return [
        (part.isdecimal(), int(part) if part.isdecimal() else 0, part)
        for part in re.split(r"([0-9]{1,18})", text)
    ]


def names_of(facts: Iterable[PodObserved]) -> list[str]:
    """``namespace/name`` of each pod, sorted."""
    return sorted(f"{fact.namespace}/{fact.name}" for fact in facts)


def namespaces_of(facts: Iterable[PodObserved]) -> tuple[str, ...]:
    """The namespaces of the pods, sorted."""
    return tuple(sorted({fact.namespace for fact in facts}))


def shown_names(names: Sequence[str], most: int = _PODS_NAMED) -> str:
    """The first names, and how many more there are: ``a, b, c and 4 more``."""
    shown = ", ".join(names[:most])
    return f"{shown} and {len(names) - most} more" if len(names) > most else shown


def about_pods(names: Sequence[str]) -> str:
    """The subject of a finding about pods: ``pod default/a``, ``pods default/a, default/b``."""
    return f"pod{'s' * (len(names) != 1)} {shown_names(names)}"


def counted(number: int, word: str) -> str:
    """``1 pod``, ``2 pods``."""
    return f"{number} {word}" if number == 1 else f"{number} {word}s"
