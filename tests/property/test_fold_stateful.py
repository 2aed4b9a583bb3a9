"""Any sequence of events keeps the books, and every way to the same sequence ends in one state."""

from hypothesis import settings

from tests.property.fold_machine import Fold

Fold.TestCase.settings = settings(max_examples=max(60, settings().max_examples // 5))
TestFold = Fold.TestCase
