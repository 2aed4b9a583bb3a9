"""A configuration text may be anything; what is wrong is said, and never ends the watcher."""

import pytest

from allotment.core.config import policy


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[" * 5_000, "conf: cannot be read: nested too deeply"),
        ('a: "\\UFFFFFFFF"', "conf: cannot be read: "),
        ('a: "\\ud800"', "conf:1:4: not YAML that is read here: half of a surrogate pair"),
        ("a: !!python/object:os.system x", "conf:1:4: not YAML that is read here: the tag"),
        ("a: !!set {b}", "conf:1:4: not YAML that is read here: the tag"),
        ("a: &x [*x]", "conf:1:4: cannot be read: an alias that contains itself"),
        ("a: &x {b: 1}\nc:\n  <<: *x", "conf:3:3: cannot be read: merge keys"),
    ],
)
def test_texts_over_which_the_yaml_reader_itself_stumbles(text: str, says: str) -> None:
    with pytest.raises(policy.PolicyError) as caught:
        policy.parse(text, "conf", ("allotment",))
    assert str(caught.value).startswith(says)


def test_a_value_that_is_no_date_is_a_text() -> None:
    (warning,) = policy.parse("since: 2001-13-45", "conf", ("allotment",)).warnings
    assert warning.startswith("conf:1:1: unknown key since of the file")


def test_aliases_of_aliases_cost_what_they_are_long() -> None:
    lines = ["x0: &x0 [a]"] + [
        f"x{n}: &x{n} [{', '.join([f'*x{n - 1}'] * 9)}]" for n in range(1, 40)
    ]
    assert len(policy.parse("\n".join(lines), "conf", ("allotment",)).warnings) == 40
