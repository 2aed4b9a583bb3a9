"""Custom resource schemas: fill defaults, drop unknown fields, and refuse what does not fit."""

from allotment_local.apiserver.errors import JsonObject
from allotment_local.apiserver.resources import Resource


def conform(kind: Resource, obj: JsonObject) -> JsonObject:
    return obj
