"""`-l`: which nodes or pods a label selector means."""

from collections.abc import Callable, Mapping

from allotment_cli.errors import CliError

FORMS = "write KEY=VALUE, KEY!=VALUE, KEY, !KEY, or 'KEY in (A, B)', with commas between"


def label_test(text: str | None) -> Callable[[Mapping[str, str]], bool]:
    """A test of labels; without a text everything passes. Raises `CliError`."""
    if text is None:
        return lambda labels: True
    from allotment_local.apiserver.errors import ApiError
    from allotment_local.apiserver.selectors import compile_labels

    try:
        return compile_labels(text)
    except ApiError as error:
        raise CliError(f"-l {text!r} is not a label selector", FORMS) from error
