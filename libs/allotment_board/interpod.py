"""Rules about other pods on columns: `company` for all positions at once.

The counts are the crowd's, kept up to date; a row with such rules evaluates them for every position
whenever anything changed, because one pod can matter to every node.
"""

import numpy as np

from allotment.core import reasons
from allotment.core.placement.rules.interpod import (
    KeepsAway,
    Meets,
    MeetsAny,
    Mounts,
    Question,
    Takes,
    Uses,
    by_topology,
    heeded,
    is_spread_over,
    required_spreads,
    stays,
)
from allotment.core.placement.rules.relative import LOG_BITS, log_weight, opinions, wished_spreads
from allotment.core.placement.rules.switches import Switches
from allotment.core.reasons import NUMBER
from allotment_board.columns import Columns
from allotment_board.packing import Bools, Ints
from allotment_proto.facts import PodRequest, Spread


class _Over:
    """Which positions' domains count for a spread constraint; kept up to date with the facts."""

    def __init__(self, columns: Columns, request: PodRequest, rule: Spread, keys: frozenset[str]):
        self._columns = columns
        self._asked = request, rule, keys
        self._where = np.zeros(len(columns), np.bool_)
        self._ask(range(len(columns)))

    def where(self) -> Bools:
        refacted = self._columns.refacted
        if self._cursor < len(refacted):
            self._ask(refacted[self._cursor :])
        return self._where

    def _ask(self, positions: range | list[int]) -> None:
        columns = self._columns
        for position in positions:
            there = columns.facts[position] is not None
            self._where[position] = there and is_spread_over(columns.node(position), *self._asked)
        self._cursor = len(columns.refacted)


class Rules:
    """One request's rules, in one epoch of the columns."""

    def __init__(self, columns: Columns, request: PodRequest, switches: Switches) -> None:
        self._columns = columns
        self._request = request
        self._switches = switches
        self._required = _overs(columns, request, required_spreads(request))
        self._wished = _overs(columns, request, wished_spreads(request))
        self.numbers = self.refusals()
        """(N,) the reason by number why a position is refused, 0 for none, when last asked."""

    @property
    def is_relative(self) -> bool:
        """Whether other pods make some nodes better than others."""
        company = self._request.company
        return bool(company.preferred or company.wanted or self._wished)

    @property
    def has_wishes(self) -> bool:
        """Whether a topology spread is wished for."""
        return bool(self._wished)

    def refusals(self) -> Ints:
        """The numbers now; the first rule that speaks against a position counts."""
        out: Ints = np.zeros(len(self._columns), np.int64)
        company = self._request.company
        tally = self._columns.crowd.tally
        if self._switches.ports:
            for port in company.ports:
                _refuse(out, tally(Takes(port)) > 0, reasons.HOST_PORT_TAKEN)
        for claim in company.sole:
            is_used = np.full(len(out), tally(Uses(claim)).any())
            _refuse(out, is_used, reasons.CLAIM_IN_USE)
        if self._switches.pods:
            if company.near:
                _refuse(out, self._not_near(), reasons.POD_AFFINITY_MISMATCH)
            for key, terms in by_topology(company.away):
                _refuse(out, self._near(key, MeetsAny(terms)) > 0, reasons.POD_ANTI_AFFINITY)
            for subject in company.repelled:
                near = self._near(subject.topology_key, KeepsAway(subject))
                _refuse(out, near > 0, reasons.REPELLED_BY_POD)
        if self._switches.spread:
            for rule, over in self._required:
                _refuse(out, self._too_many(rule, over.where()), reasons.SPREAD_MISMATCH)
        if self._switches.limits:
            for driver in sorted({a.driver for a in self._request.attachments}):
                new = self._new_volumes(driver)
                short = (new > 0) & (new > self._columns.crowd.room(driver))
                _refuse(out, short, reasons.VOLUME_LIMIT_REACHED)
        return out

    def _new_volumes(self, driver: str) -> Ints:
        """`attachments._new_volumes` of one driver."""
        new: Ints = np.zeros(len(self._columns), np.int64)
        for volume in self._request.attachments:
            if volume.driver == driver:
                if volume.claim:
                    new += self._columns.crowd.tally(Mounts(volume)) == 0
                else:
                    new += volume.count
        return new

    def pods_raw(self) -> Ints:
        """`relative._pods_raw` of all positions."""
        raw: Ints = np.zeros(len(self._columns), np.int64)
        for key, question in opinions(self._request):
            raw += self._near(key, question)
        return raw

    def spread_raw(self, fit: Bools) -> tuple[Ints, Bools]:
        """`relative._spread_raw` of all positions, and which of those that fit take part."""
        crowd = self._columns.crowd
        domains = [crowd.domain(rule.term.topology_key) for rule, _ in self._wished]
        takes_part = fit.copy()
        for domain in domains:
            takes_part &= ~domain.lacks()
        raw: Ints = np.full(len(self._columns), 1 << LOG_BITS - 1, np.int64)
        for (rule, over), domain in zip(self._wished, domains, strict=True):
            weight = log_weight(int(np.count_nonzero(domain.present(takes_part))))
            sums = domain.sums(crowd.tally(stays(rule)) * over.where())
            raw += sums[domain.numbers] * weight + (rule.max_skew - 1 << LOG_BITS)
        return raw >> LOG_BITS, takes_part

    def _near(self, key: str, question: Question) -> Ints:
        """(N,) the answers of all pods in each position's domain; 0 where there is no domain."""
        crowd = self._columns.crowd
        domain = crowd.domain(key)
        if not domain.is_anywhere:
            return np.zeros(len(self._columns), np.int64)
        near: Ints = domain.sums(crowd.tally(question))[domain.numbers]
        return near

    def _not_near(self) -> Bools:
        company, crowd = self._request.company, self._columns.crowd
        near = [self._near(term.topology_key, Meets(company.near)) for term in company.near]
        away = np.zeros(len(self._columns), np.bool_)
        for term in company.near:
            away |= crowd.domain(term.topology_key).lacks()
        if not company.near_self or any(found.any() for found in near):
            for found in near:
                away |= found == 0
        return away

    def _too_many(self, rule: Spread, over: Bools) -> Bools:
        crowd = self._columns.crowd
        domain = crowd.domain(rule.term.topology_key)
        too_many = domain.lacks()
        present = domain.present(over)
        number = int(np.count_nonzero(present))
        if number:
            sums = domain.sums(crowd.tally(stays(rule)) * over)
            least = int(sums[present].min()) if number >= rule.min_domains else 0
            too_many |= sums[domain.numbers] + int(rule.counts_self) - least > rule.max_skew
        return too_many


def _overs(
    columns: Columns, request: PodRequest, rules: tuple[Spread, ...]
) -> list[tuple[Spread, _Over]]:
    keys = frozenset(rule.term.topology_key for rule in rules)
    found: dict[tuple[bool, bool], _Over] = {}
    for rule in rules:  # most rules honor the same, so they cover the same positions
        if heeded(rule) not in found:
            found[heeded(rule)] = _Over(columns, request, rule, keys)
    return [(rule, found[heeded(rule)]) for rule in rules]


def _refuse(out: Ints, where: Bools, code: str) -> None:
    out[(out == 0) & where] = NUMBER[code]
