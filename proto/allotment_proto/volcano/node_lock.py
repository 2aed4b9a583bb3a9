"""Node locks, for device plugins of the older protocol.

A lock is a node annotation (`keys.LOCK_VGPU` and others) whose value is when it was taken, in
RFC 3339 with seconds; HAMi appends ``,namespace,name`` of the pod. Device plugins delete it.

Source: volcano `plugins/util/nodelock`, `vgpu/device_info.go` up to v1.15.0 (deviceshare 2.3, 6.4).
"""

import re

import msgspec

from allotment_proto.facts import Problem
from allotment_proto.volcano.reading import shown

EXPIRES_AFTER_S = 300
_LOCK = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[Tt](\d\d):(\d\d):(\d\d)(?:\.\d+)?(?:[Zz]|([+-])(\d\d):(\d\d))", re.ASCII
)
_DAY_S = 86_400
_MONTH_DAYS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


class Lock(msgspec.Struct, frozen=True, array_like=True):
    """A lock that is held. `pod` is ``namespace/name`` if the value says it."""

    taken_s: int
    pod: str = ""

    def is_expired(self, now_s: int) -> bool:
        """Whether it may be taken over. One from the future is held, as in Volcano."""
        return now_s - self.taken_s > EXPIRES_AFTER_S


def encode_lock(now_s: int) -> str:
    """The value of a lock taken now (Unix seconds), in UTC."""
    year, month, day, hour, minute, second = _civil(now_s)
    return f"{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z"


def parse_lock(text: str, place: str) -> Lock | Problem:
    """The lock in an annotation; `place` names it. What cannot be read is not guessed."""
    stamp, *pod = text.split(",")
    match = _LOCK.fullmatch(stamp)
    seconds = None if match is None else _unix(*(int(part) for part in match.groups()[:6]))
    if match is None or seconds is None or len(pod) not in (0, 2):
        return Problem(
            "BrokenNodeLock",
            place,
            f"is {shown(text)}; wanted: a time like 2026-01-31T12:00:00Z. Delete it if no device "
            "plugin is at work on the node",
        )
    sign, hours, minutes = match.groups()[6:]
    if sign is not None:
        offset = int(hours) * 3600 + int(minutes) * 60
        seconds -= offset if sign == "+" else -offset
    return Lock(seconds, "/".join(pod))


def _leap(year: int) -> bool:
    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)


def _days_in(year: int, month: int) -> int:
    return _MONTH_DAYS[month - 1] + (month == 2 and _leap(year))


def _days_before(year: int) -> int:
    """Days from 1970-01-01 to the first day of a year."""
    past = year - 1
    return past * 365 + past // 4 - past // 100 + past // 400 - 719_162


def _unix(year: int, month: int, day: int, hour: int, minute: int, second: int) -> int | None:
    """Unix seconds of a time in UTC; None if the calendar has no such moment."""
    if not (year >= 1 and 1 <= month <= 12 and 1 <= day <= _days_in(year, month)):
        return None
    if not (hour < 24 and minute < 60 and second <= 60):
        return None
    days = _days_before(year) + sum(_days_in(year, m) for m in range(1, month)) + day - 1
    return days * _DAY_S + hour * 3600 + minute * 60 + second


def _civil(now_s: int) -> tuple[int, int, int, int, int, int]:
    """The calendar in UTC for Unix seconds."""
    days, rest = divmod(now_s, _DAY_S)
    year = 1970 + days // 366
    while _days_before(year + 1) <= days:
        year += 1
    days -= _days_before(year)
    month = 1
    while days >= _days_in(year, month):
        days -= _days_in(year, month)
        month += 1
    return year, month, days + 1, rest // 3600, rest // 60 % 60, rest % 60
