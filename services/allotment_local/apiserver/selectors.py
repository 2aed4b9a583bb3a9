"""Label and field selectors of list, watch and deletecollection, compiled to one predicate."""

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from allotment_local.apiserver.errors import JsonObject, bad_request

Predicate = Callable[[JsonObject], bool]

_KEY = r"[A-Za-z0-9](?:[A-Za-z0-9._/-]*[A-Za-z0-9])?"
_SET = re.compile(rf"({_KEY})\s+(in|notin)\s*\(([^()]*)\)")
_EQUAL = re.compile(rf"({_KEY})\s*(==|=|!=|>|<)\s*([A-Za-z0-9._-]*)")
_EXISTS = re.compile(rf"(!?)\s*({_KEY})")
_INTEGER = re.compile(r"-?\d{1,19}", re.ASCII)
_BETWEEN = re.compile(r"\s*(,\s*|$)")
# Events are kept in their core/v1 form; these are the other names of its fields.
_ALIASES = {"source": "source.component", "reportingController": "reportingComponent"}


def _label_test(
    key: str, operator: str, values: frozenset[str]
) -> Callable[[Mapping[str, str]], bool]:
    if operator in ("in", "=", "=="):
        return lambda labels: labels.get(key) in values
    if operator in ("notin", "!="):
        return lambda labels: labels.get(key) not in values
    if operator == "exists":
        return lambda labels: key in labels
    if operator == "!":
        return lambda labels: key not in labels
    (bound,) = values
    if not _INTEGER.fullmatch(bound):
        raise bad_request(
            f'unable to parse requirement: values[0]: Invalid value: "{bound}": '
            "for 'Gt', 'Lt' operators, the value must be an integer"
        )
    limit, above = int(bound), operator == ">"

    def compare(labels: Mapping[str, str]) -> bool:
        value = labels.get(key, "")
        if not _INTEGER.fullmatch(value):
            return False
        return int(value) > limit if above else int(value) < limit

    return compare


@lru_cache(maxsize=512)
def compile_labels(text: str) -> Callable[[Mapping[str, str]], bool]:
    """`a=b,c!=d,e in (f,g),h,!i,j>1` as a test on a label map. ApiError 400 when malformed."""
    tests: list[Callable[[Mapping[str, str]], bool]] = []
    rest = text.strip()
    while rest:
        if match := _SET.match(rest):
            values = frozenset(value.strip() for value in match[3].split(","))
            tests.append(_label_test(match[1], match[2], values))
        elif match := _EQUAL.match(rest):
            tests.append(_label_test(match[1], match[2], frozenset({match[3]})))
        elif match := _EXISTS.match(rest):
            tests.append(_label_test(match[2], match[1] or "exists", frozenset()))
        else:
            raise bad_request(f"unable to parse requirement: {text!r} at {rest!r}")
        end = _BETWEEN.match(rest, match.end())
        if end is None or (end[1] and end.end() == len(rest)):
            raise bad_request(f"unable to parse requirement: {text!r} at {rest[match.end() :]!r}")
        rest = rest[end.end() :]
    return lambda labels: all(test(labels) for test in tests)


def matches_label_selector(selector: JsonObject | None, labels: Mapping[str, str]) -> bool:
    """A LabelSelector object (matchLabels, matchExpressions). None matches nothing."""
    if selector is None:
        return False
    for key, value in (selector.get("matchLabels") or {}).items():
        if labels.get(key) != value:
            return False
    names = {"In": "in", "NotIn": "notin", "Exists": "exists", "DoesNotExist": "!"}
    for expression in selector.get("matchExpressions") or []:
        operator = names.get(expression.get("operator"))
        if operator is None:
            raise bad_request(f"{expression.get('operator')!r} is not a valid selector operator")
        values = frozenset(expression.get("values") or [])
        if not _label_test(expression["key"], operator, values)(labels):
            return False
    return True


def _field_value(obj: JsonObject, path: tuple[str, ...]) -> str:
    value: Any = obj
    for part in path:
        value = value.get(part) if isinstance(value, dict) else None
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _split_fields(text: str) -> list[tuple[str, str, str]]:
    """Terms of a field selector; a backslash keeps a comma or an equals sign in the value."""
    terms = []
    for term in re.split(r"(?<!\\),", text):
        if not term:
            continue
        match = re.fullmatch(r"([^=!]+)(==|!=|=)((?:[^=\\]|\\.)*)", term)
        if match is None:
            raise bad_request(f"invalid selector: '{text}'; can't understand '{term}'")
        terms.append((match[1].strip(), match[2], re.sub(r"\\(.)", r"\1", match[3])))
    return terms


def _field_test(field: str, wanted: str, *, equal: bool) -> Predicate:
    path = tuple(_ALIASES.get(field, field).replace("regarding.", "involvedObject.").split("."))
    if field == "spec.unschedulable" and wanted == "false":
        wanted = ""  # omitted when false

        def schedulable(obj: JsonObject) -> bool:
            return (_field_value(obj, path) in ("", "false")) is equal

        return schedulable
    return lambda obj: (_field_value(obj, path) == wanted) is equal


@lru_cache(maxsize=512)
def compile_selector(labels: str, fields: str, known_fields: frozenset[str]) -> Predicate | None:
    """One predicate for both selectors, or None when there is nothing to select by.

    ApiError 400 for a malformed selector or a field the resource cannot be selected by.
    """
    tests: list[Predicate] = []
    if labels.strip():
        label_test = compile_labels(labels)
        tests.append(lambda obj: label_test(obj["metadata"].get("labels") or {}))
    for field, operator, wanted in _split_fields(fields):
        if field not in known_fields:
            raise bad_request(
                f'field label not supported: "{field}"; '
                f"supported: {', '.join(sorted(known_fields))}"
            )
        tests.append(_field_test(field, wanted, equal=operator != "!="))
    if not tests:
        return None
    if len(tests) == 1:
        return tests[0]
    return lambda obj: all(test(obj) for test in tests)
