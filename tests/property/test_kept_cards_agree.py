"""The page of metrics with kept text is the page that is made anew, byte by byte, at any moment."""

from typing import Any

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from allotment.adapters.telemetry.kept_gauges import lines_of
from allotment.core.ledger import snapshot
from allotment.core.metrics.cards import card_gauges
from allotment.core.metrics.kept_cards import KeptCards
from allotment_proto.events import DevicesConfigured, PolicyLoaded
from tests.property.fold_machine import Fold


class Scraped(Fold):
    """Everything that the log can be told, seen by one that scrapes each time, and by one that does
    so now and then, and on a state that may have been restored."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: Any = None
        self.often = KeptCards(lambda: self.state, lines_of)
        self.seldom = KeptCards(lambda: self.state if self.seen is None else self.seen, lines_of)

    @rule(namespaces=st.booleans(), factor=st.sampled_from((1, 10)))
    def what_all_rows_depend_on_changes(self, namespaces: bool, factor: int) -> None:
        policy = msgspec.structs.replace(self.state.policy, namespace_in_metrics=namespaces)
        self.append(PolicyLoaded(policy=policy, source="", text_sha256=""))
        nvidia = msgspec.structs.replace(self.state.devices.nvidia, memory_factor=factor)
        config = msgspec.structs.replace(self.state.devices, nvidia=nvidia)
        self.append(DevicesConfigured(config=config, source="", text_sha256=""))

    @rule(is_restored=st.booleans())
    def somebody_scrapes_again(self, is_restored: bool) -> None:
        self.seen = snapshot.decode(snapshot.encode(self.state)) if is_restored else None
        assert text(self.seldom) == anew(self.state)

    @invariant()
    def a_scrape_shows_all(self) -> None:
        assert text(self.often) == anew(self.state)


def text(kept: KeptCards[bytes]) -> dict[str, bytes]:
    for name in kept.changed():
        kept.look_at(name)
    return {gauge.name: b"".join(texts) for gauge, texts in kept.pages()}


def anew(state: Any) -> dict[str, bytes]:
    return {gauge.name: lines_of(gauge) for gauge in card_gauges(state)}


Scraped.TestCase.settings = settings(max_examples=max(40, settings().max_examples // 5))
TestScraped = Scraped.TestCase
