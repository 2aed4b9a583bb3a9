"""The identity of the log as somebody may have written it by hand."""

from typing import cast

import pytest

from allotment.adapters.kube.client import KubeClient
from allotment.adapters.kube.kept_text import KeptText, TextUnavailable
from allotment.adapters.service.identity import Identity, _read

KEPT = KeptText(cast(KubeClient, None), "allotment-system", "allotment-log")


@pytest.mark.parametrize("text", ["", "{", "[]", '{"log":"x","seq":-5}', '{"log":"x","seq":"7"}'])
def test_what_cannot_be_read_is_not_nothing_and_is_named(text: str) -> None:
    """A sequence below 0 ended the service at each start: NATS knows no such record."""
    with pytest.raises(TextUnavailable) as said:
        _read(text, KEPT)
    assert "ConfigMap allotment-system/allotment-log" in str(said.value)
    assert "kubectl -n allotment-system delete configmap allotment-log" in str(said.value)


def test_what_can_be_read_and_nothing() -> None:
    assert _read('{"log":"x","seq":7,"record":"d"}', KEPT) == Identity("x", 7, "d")
    assert _read(None, KEPT) is None
