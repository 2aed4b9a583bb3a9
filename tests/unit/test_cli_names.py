"""Which name was meant: one alike in the same namespace, not one that shares the namespace."""

import pytest

from allotment.answers.names import near

KNOWN = ("default/replicas", "default/too-big-4d48", "ml/llama", "ml/llama-2")


@pytest.mark.parametrize(
    ("namespace", "name", "meant"),
    [
        ("default", "nope", ""),
        ("default", "replica", "default/replicas"),
        ("default", "too", "default/too-big-4d48"),
        ("default", "llama", "ml/llama"),
        ("ml", "lama", "ml/llama"),
        ("other", "lama", ""),
    ],
)
def test_near(namespace: str, name: str, meant: str) -> None:
    assert near(namespace, name, KNOWN) == meant
