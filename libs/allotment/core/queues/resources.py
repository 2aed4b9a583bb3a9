"""Named amounts, and the ways in which schedulers compare them.

Units are Volcano's: `cpu` in milli-cores, `memory` in bytes, `pods` in whole pods, every other
resource and every card in thousandths (`nvidia.com/gpu: 1` is 1000). Observed amounts are integers;
amounts divided by weight (`proportion`) are exact rationals. There are no floats, so the tolerance
of 0.1 below which two amounts count as equal matters only where a rational meets an integer.

A comparison has to define a missing name: zero, or no limit. Most quota checks look only at the
names that a request asks for (`named`).
"""

from collections.abc import Collection, ItemsView, Iterator, Mapping
from fractions import Fraction

CPU = "cpu"
MEMORY = "memory"
PODS = "pods"
MILLI = 1000

Amount = int | Fraction

_TOLERANCE = Fraction(1, 10)
_OVER, _UNDER = _TOLERANCE.as_integer_ratio()


def is_at_most(left: Amount, right: Amount) -> bool:
    """``left ≤ right``, or more by less than the tolerance."""
    return left <= right or left - right < _TOLERANCE


class Resources(Mapping[str, Amount]):
    """An immutable mapping from a resource's name to its amount. A zero that is named stays."""

    __slots__ = ("_amounts", "_hash", "_named")

    def __init__(self, amounts: Mapping[str, Amount] | None = None) -> None:
        self._amounts: dict[str, Amount] = dict(amounts) if amounts else {}
        self._named: tuple[str, ...] | None = None
        self._hash: int | None = None

    def __getitem__(self, name: str) -> Amount:
        return self._amounts[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._amounts)

    def __len__(self) -> int:
        return len(self._amounts)

    def __contains__(self, name: object) -> bool:
        return name in self._amounts

    def items(self) -> ItemsView[str, Amount]:
        return self._amounts.items()

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Resources):
            return self._amounts == other._amounts
        return super().__eq__(other)

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash(frozenset(self._amounts.items()))
        return self._hash

    def __repr__(self) -> str:
        inside = ", ".join(f"{name}={amount}" for name, amount in sorted(self._amounts.items()))
        return f"Resources({inside})"

    def amount(self, name: str) -> Amount:
        """The amount of a name, 0 if it is missing."""
        return self._amounts.get(name, 0)

    @property
    def named(self) -> tuple[str, ...]:
        """The names with an amount above zero, sorted."""
        if self._named is None:
            found = sorted(name for name, amount in self._amounts.items() if amount > 0)
            self._named = tuple(found)
        return self._named

    def or_nothing(self) -> "Resources":
        """The shared `NOTHING` if no amount is above zero, so that it need not be added."""
        return self if any(self._amounts.values()) else NOTHING

    def plus(self, other: "Resources") -> "Resources":
        out = dict(self._amounts)
        for name, amount in other._amounts.items():
            out[name] = out.get(name, 0) + amount
        return _made(out)

    def minus(self, other: "Resources") -> "Resources":
        """The difference, which may be negative."""
        out = dict(self._amounts)
        for name, amount in other._amounts.items():
            out[name] = out.get(name, 0) - amount
        return _made(out)

    def beyond(self, other: "Resources") -> "Resources":
        """What is more than `other` (missing there: nothing); never negative."""
        there = other._amounts
        return _made(
            {name: max(amount - there.get(name, 0), 0) for name, amount in self._amounts.items()}
        )

    def capped(self, limit: "Resources") -> "Resources":
        """At most `limit` of each name in it; other names are unchanged."""
        there = limit._amounts
        return _made(
            {name: min(amount, there.get(name, amount)) for name, amount in self._amounts.items()}
        )

    def raised(self, least: "Resources") -> "Resources":
        """At least `least` of everything."""
        out = dict(self._amounts)
        for name, amount in least._amounts.items():
            out[name] = max(out.get(name, 0), amount)
        return _made(out)

    def only(self, names: Collection[str]) -> "Resources":
        return _made({name: amount for name, amount in self._amounts.items() if name in names})

    def without(self, names: Collection[str]) -> "Resources":
        return _made({name: amount for name, amount in self._amounts.items() if name not in names})

    def exceeding(
        self, limit: "Resources", names: Collection[str] | None = None
    ) -> tuple[str, ...]:
        """The names, sorted, of which this is more than the limit.

        `names` restricts the comparison; a name that the limit lacks counts as 0 there.
        """
        here, there = self._amounts, limit._amounts
        found = []
        for name in here if names is None else names:
            amount, most = here.get(name, 0), there.get(name, 0)
            if amount > most and not is_at_most(amount, most):
                found.append(name)
        return tuple(sorted(found))

    def too_little_left(
        self, limit: "Resources", asked: "Resources", names: Collection[str]
    ) -> tuple[str, ...]:
        """The names of which this and `asked` together are more than the limit."""
        here, more, there = self._amounts, asked._amounts, limit._amounts
        found = []
        for name in names:
            amount, most = here.get(name, 0) + more.get(name, 0), there.get(name, 0)
            if amount > most and not is_at_most(amount, most):
                found.append(name)
        return tuple(sorted(found))

    def is_within(self, limit: "Resources") -> bool:
        """Whether this is at most the limit, name by name; see `exceeding`."""
        there = limit._amounts
        for name, amount in self._amounts.items():
            most = there.get(name, 0)
            if amount > most and not is_at_most(amount, most):
                return False
        return True

    def whole_at_most(self) -> "Resources":
        """As a limit for integers: the greatest integers that are at most these amounts."""
        return _made({name: _below(amount) for name, amount in self._amounts.items()})

    def whole_at_least(self) -> "Resources":
        """As a threshold for integers: the smallest integers that are at least these amounts."""
        return _made({name: _above(amount) for name, amount in self._amounts.items()})


def _below(amount: Amount) -> int:
    """The greatest integer that is at most an amount, or more by less than the tolerance."""
    if isinstance(amount, int):
        return amount
    over, under = amount.numerator, amount.denominator
    return (over * _UNDER + under * _OVER - 1) // (under * _UNDER)


def _above(amount: Amount) -> int:
    """The smallest integer that is at least an amount, or less by less than the tolerance."""
    if isinstance(amount, int):
        return amount
    over, under = amount.numerator, amount.denominator
    return (over * _UNDER - under * _OVER) // (under * _UNDER) + 1


NOTHING = Resources()


def _made(amounts: dict[str, Amount]) -> Resources:
    made = Resources.__new__(Resources)
    made._amounts = amounts
    made._named = made._hash = None
    return made


def add_to(sums: dict[str, Amount], part: Resources) -> None:
    """Add to sums that are still being built: cheaper than a new value each time."""
    for name, amount in part._amounts.items():
        sums[name] = sums.get(name, 0) + amount


def total_of(parts: Collection[Resources]) -> Resources:
    if len(parts) == 1:
        return next(iter(parts))
    out: dict[str, Amount] = {}
    for part in parts:
        add_to(out, part)
    return _made(out)


class Tally:
    """The sum of parts that come and go. It has a name as long as one of the parts has it."""

    __slots__ = ("_amounts", "_parts", "_total")

    def __init__(self) -> None:
        self._amounts: dict[str, Amount] = {}
        self._parts: dict[str, int] = {}
        """By name, how many parts have it."""
        self._total: Resources | None = None

    def add(self, part: Resources, times: int = 1) -> None:
        """Add a part so many times; a negative number removes it that often."""
        self._total = None
        amounts, parts = self._amounts, self._parts
        for name, amount in part._amounts.items():
            number = parts.get(name, 0) + times
            if number:
                parts[name] = number
                amounts[name] = amounts.get(name, 0) + amount * times
            else:
                amounts.pop(name, None)
                parts.pop(name, None)

    def swap(self, before: Resources, now: Resources) -> None:
        """Replace a part by another."""
        if before._amounts.keys() != now._amounts.keys():
            self.add(before, -1)
            self.add(now)
            return
        self._total = None
        amounts, there = self._amounts, before._amounts
        for name, amount in now._amounts.items():
            amounts[name] += amount - there[name]

    def amounts(self) -> Resources:
        if self._total is None:
            self._total = Resources(self._amounts)
        return self._total


_NO_SHARE = 0
"""The share of all that have nothing. An integer, because orders are looked up by it and hashing a
fraction takes a division.
"""


def share(part: Amount, whole: Amount) -> Fraction:
    """``part / whole``; where the whole is 0: 0 for no part, otherwise 1."""
    if whole == 0:
        return Fraction(0 if part == 0 else 1)
    return Fraction(part) / Fraction(whole)


def largest_share(part: Resources, whole: Resources) -> Amount:
    """The greatest share over the names of `whole`; 0 if it has none.

    Shares are compared crosswise and only the greatest is reduced, because this is called often.
    """
    best, of = 0, 1
    if not part._amounts:
        return _NO_SHARE
    for name, all_ in whole._amounts.items():
        some = part._amounts.get(name, 0)
        over, under = some.numerator * all_.denominator, all_.numerator * some.denominator
        if under == 0:
            over, under = (1 if over else 0), 1
        if over * of > best * under:
            best, of = over, under
    return Fraction(best, of) if best else _NO_SHARE
