"""What the field of a settings struct says about itself: flag, variable, what would be right."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import msgspec
from msgspec import Meta
from msgspec.structs import FieldInfo

ENV_PREFIX = "ALLOT_"
HIDDEN = "********"

_USERINFO = re.compile(r"(?<=://)[^/@\s,]+(?=@)")


def expectation_of(field: FieldInfo) -> str:
    """What would be right, in words."""
    meta = meta_of(field)
    bare = bare_of(field)
    if get_origin(bare) is Literal:
        return "one of " + ", ".join(str(choice) for choice in get_args(bare))
    words = {int: "a whole number", float: "a number", bool: "true or false"}.get(bare, "a text")
    if is_list(field):
        words = "a list parted by commas"
    if meta.ge is not None and meta.le is not None:
        words += f" from {meta.ge} to {meta.le}"
    elif meta.ge is not None:
        words += f" of at least {meta.ge}"
    elif meta.le is not None:
        words += f" of at most {meta.le}"
    if meta.gt is not None:
        words += f" above {meta.gt}"
    if meta.lt is not None:
        words += f" below {meta.lt}"
    if meta.min_length:
        words += f" of at least {meta.min_length} characters"
    if meta.examples:
        words += ", for example " + " or ".join(str(example) for example in meta.examples)
    elif meta.pattern:
        words += f" that matches {meta.pattern}"
    return f"{words} ({description_of(field)})"


def default_text(field: FieldInfo) -> str:
    if field.required:
        return "required"
    default = field.default
    if default is msgspec.NODEFAULT:
        default = field.default_factory()
    if default is None or default == () or default == "":
        return "not set by default"
    if isinstance(default, tuple):
        default = ",".join(str(part) for part in default)
    return f"default: {str(default).lower() if isinstance(default, bool) else default}"


def flag_of(field: FieldInfo) -> str:
    return "--" + field.name.replace("_", "-")


def variable_of(field: FieldInfo) -> str:
    return ENV_PREFIX + field.name.upper()


def shown_of(field: FieldInfo, raw: str) -> str:
    return HIDDEN if extra_of(field).get("secret") else repr(without_password(raw))


def meta_of(field: FieldInfo) -> Meta:
    if get_origin(field.type) is Annotated:
        for part in field.type.__metadata__:
            if isinstance(part, Meta):
                return part
    return Meta()


def extra_of(field: FieldInfo) -> Mapping[str, Any]:
    return meta_of(field).extra or {}


def description_of(field: FieldInfo) -> str:
    return meta_of(field).description or field.name.replace("_", " ")


def bare_of(field: FieldInfo) -> Any:
    """The field's type without Annotated and without `| None`."""
    bare = field.type.__origin__ if get_origin(field.type) is Annotated else field.type
    options = [option for option in get_args(bare) if option is not type(None)]
    if get_origin(bare) is not Literal and len(options) == 1 and type(None) in get_args(bare):
        return options[0]
    return bare


def is_bool(field: FieldInfo) -> bool:
    return bare_of(field) is bool


def is_list(field: FieldInfo) -> bool:
    return get_origin(bare_of(field)) in (list, tuple)


def metavar_of(field: FieldInfo) -> str:
    bare = bare_of(field)
    if get_origin(bare) is Literal:
        return "|".join(str(choice) for choice in get_args(bare))
    if is_list(field):
        return "A,B,…"
    return {int: "N", float: "N", bool: "true|false", Path: "PATH"}.get(bare, "TEXT")


def without_password(text: str) -> str:
    """A text with the user and password of any URL in it hidden."""
    return _USERINFO.sub(HIDDEN, text)
