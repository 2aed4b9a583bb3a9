"""A configuration text may be anything; what is wrong is said, and never ends the watcher."""

import pytest

from allotment.core import policy


@pytest.mark.parametrize("text", ["since: 2001-13-45", "[" * 5_000])
def test_texts_over_which_the_yaml_reader_itself_stumbles(text: str) -> None:
    with pytest.raises(policy.PolicyError, match="conf: cannot be read: "):
        policy.parse(text, "conf", ("allotment",))
