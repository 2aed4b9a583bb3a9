"""Metadata: names, identities, labels, and what a write may and may not change about them."""

import re
from collections.abc import Callable
from functools import lru_cache
from hashlib import blake2s
from typing import Any

from allotment_local.apiserver.errors import (
    FieldError,
    JsonObject,
    bad_request,
    bad_value,
    conflict,
    forbidden_field,
    invalid,
    required,
)
from allotment_local.apiserver.resources import NAMESPACES, Resource
from allotment_local.apiserver.shapes import METADATA, shaped

_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_LABEL_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_NAME_BYTES_MAX = 253
_LABEL_BYTES_MAX = 63
_ANNOTATIONS_BYTES_MAX = 256 * 1024
_SUFFIX_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
_SUFFIX_LENGTH = 5
_SUBDOMAIN_RULE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or "
    "'.', and must start and end with an alphanumeric character"
)
# Set by the server once; whatever a later write says about them is ignored.
_CARRIED = (
    "name",
    "namespace",
    "generateName",
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
    "resourceVersion",
)


def copied_metadata(obj: JsonObject) -> JsonObject:
    """A copy of the object's metadata whose shape is right; ApiError 400 names what is not."""
    metadata = obj.get("metadata")
    return dict(shaped(METADATA, {} if metadata is None else metadata, "metadata"))


def check_type(resource: Resource, obj: JsonObject) -> None:
    """Refuse a body of another kind or version than its URL; one that names none is ours."""
    kind, api_version = obj.get("kind"), obj.get("apiVersion")
    if kind and kind != resource.kind:
        raise bad_request(
            f"{kind} in version {api_version!r} cannot be handled as a {resource.kind}: "
            "the kind in the data does not match the URL"
        )
    if api_version and api_version != resource.api_version:
        raise bad_request(
            f"the API version in the data ({api_version}) does not match the expected API "
            f"version ({resource.api_version})"
        )


def _label_errors(labels: dict[str, str]) -> list[FieldError]:
    errors = []
    for key, value in labels.items():
        if not is_qualified_name(key):
            errors.append(bad_value("metadata.labels", key, "is not a qualified name"))
        if value and (len(value) > _LABEL_BYTES_MAX or not _LABEL_NAME.fullmatch(value)):
            errors.append(
                bad_value(
                    "metadata.labels",
                    value,
                    "a valid label must be an empty string or consist of alphanumeric characters, "
                    "'-', '_' or '.', and must start and end with an alphanumeric character, "
                    f"at most {_LABEL_BYTES_MAX} of them",
                )
            )
    return errors


@lru_cache(maxsize=4096)
def is_qualified_name(key: str) -> bool:
    """`name` or `domain/name`: label and annotation keys, resource names."""
    prefix, slash, name = key.rpartition("/")
    if slash and (len(prefix) > _NAME_BYTES_MAX or not _SUBDOMAIN.fullmatch(prefix)):
        return False
    return len(name) <= _LABEL_BYTES_MAX and _LABEL_NAME.fullmatch(name) is not None


def _annotation_errors(annotations: dict[str, str]) -> list[FieldError]:
    errors = [
        bad_value("metadata.annotations", key, "is not a qualified name")
        for key in annotations
        if not is_qualified_name(key.lower())
    ]
    size_bytes = sum(len(key) + len(value) for key, value in annotations.items())
    if size_bytes > _ANNOTATIONS_BYTES_MAX:
        why = f"may not be more than {_ANNOTATIONS_BYTES_MAX} bytes, is {size_bytes}"
        errors.append(FieldError("metadata.annotations", "FieldValueTooLong", f"Too long: {why}"))
    return errors


def _name_errors(resource: Resource, name: str) -> list[FieldError]:
    if resource.group == "rbac.authorization.k8s.io":  # any path segment, such as "system:node"
        if name in (".", "..") or "/" in name or "%" in name:
            return [
                bad_value("metadata.name", name, "may not be '.' or '..' or contain '/' or '%'")
            ]
        return []
    if resource.key == NAMESPACES:
        if len(name) > _LABEL_BYTES_MAX or not _LABEL.fullmatch(name):
            return [bad_value("metadata.name", name, "must be a lowercase RFC 1123 label")]
        return []
    if len(name) > _NAME_BYTES_MAX:
        return [bad_value("metadata.name", name, f"must be no more than {_NAME_BYTES_MAX} bytes")]
    if not _SUBDOMAIN.fullmatch(name):
        return [bad_value("metadata.name", name, _SUBDOMAIN_RULE)]
    return []


def _generated(prefix: str, seed: str) -> str:
    number = int.from_bytes(blake2s(seed.encode(), digest_size=8).digest(), "big")
    suffix = ""
    for _ in range(_SUFFIX_LENGTH):
        number, letter = divmod(number, len(_SUFFIX_LETTERS))
        suffix += _SUFFIX_LETTERS[letter]
    return prefix[: _NAME_BYTES_MAX - _SUFFIX_LENGTH] + suffix


def metadata_for_create(
    resource: Resource, namespace: str, obj: JsonObject, *, now: str, new_id: Callable[[], str]
) -> JsonObject:
    """The metadata a new object is stored with: named, identified, dated."""
    metadata = copied_metadata(obj)
    if metadata.get("resourceVersion"):
        raise bad_request("resourceVersion should not be set on objects to be created")
    given = metadata.pop("namespace", "") or ""
    if resource.namespaced:
        if not namespace:
            raise bad_request(f"an empty namespace may not be set when creating a {resource.kind}")
        if given and given != namespace:
            raise bad_request(
                f"the namespace of the provided object does not match the namespace sent on the "
                f"request ({given!r} and {namespace!r})"
            )
        metadata["namespace"] = namespace
    for name in ("deletionTimestamp", "deletionGracePeriodSeconds", "managedFields", "selfLink"):
        metadata.pop(name, None)
    uid = new_id()
    name = metadata.get("name") or ""
    if not name:
        if not metadata.get("generateName"):
            raise invalid(
                resource.kind,
                resource.group,
                "",
                [required("metadata.name", "name or generateName is required")],
            )
        name = _generated(metadata["generateName"], uid)
    errors = _name_errors(resource, name)
    errors += _label_errors(metadata.get("labels") or {})
    errors += _annotation_errors(metadata.get("annotations") or {})
    if errors:
        raise invalid(resource.kind, resource.group, name, errors)
    metadata.update(name=name, uid=uid, creationTimestamp=now)
    if resource.has_generation or resource.custom:
        metadata["generation"] = 1
    return metadata


def metadata_for_update(resource: Resource, old: JsonObject, new: JsonObject) -> JsonObject:
    """The metadata of the next version. ApiError 409 when the writer saw another version."""
    before, metadata = old["metadata"], copied_metadata(new)
    name = before["name"]
    if metadata.get("name", name) != name:
        raise bad_request(
            f"the name of the object ({metadata['name']}) does not match the name on the URL "
            f"({name})"
        )
    if (metadata.get("namespace") or before.get("namespace")) != before.get("namespace"):
        raise bad_request("the namespace of the provided object does not match the one on the URL")
    check_preconditions(resource, before, metadata.get("uid"), metadata.get("resourceVersion"))
    errors: list[FieldError] = []
    if before.get("deletionTimestamp"):
        added = set(metadata.get("finalizers") or ()) - set(before.get("finalizers") or ())
        if added:
            why = f"no new finalizers can be added if the object is being deleted: {sorted(added)}"
            errors.append(forbidden_field("metadata.finalizers", why))
    if metadata.get("labels") != before.get("labels"):
        errors += _label_errors(metadata.get("labels") or {})
    if metadata.get("annotations") != before.get("annotations"):
        errors += _annotation_errors(metadata.get("annotations") or {})
    if errors:
        raise invalid(resource.kind, resource.group, name, errors)
    metadata.pop("managedFields", None)
    for carried in _CARRIED:
        if carried in before:
            metadata[carried] = before[carried]
        else:
            metadata.pop(carried, None)
    return metadata


def check_same(resource: Resource, old: JsonObject, new: JsonObject) -> JsonObject:
    """The patched object itself. ApiError 422 if the patch, of the version that there is, names
    another uid: only a PUT of it is a conflict.
    """
    before, after = old["metadata"], new.get("metadata")
    if isinstance(after, dict) and after.get("resourceVersion") == before["resourceVersion"]:
        uid = after.get("uid")
        if uid and uid != before["uid"]:
            error = bad_value("metadata.uid", uid, "field is immutable")
            raise invalid(resource.kind, resource.group, before["name"], [error])
    return new


def check_preconditions(
    resource: Resource, metadata: JsonObject, uid: Any, resource_version: Any
) -> None:
    """ApiError 409 unless the stored object is the one, in the version, the caller means."""
    plural, group, name = resource.plural, resource.group, metadata["name"]
    if uid and uid != metadata["uid"]:
        why = (
            f"Precondition failed: UID in precondition: {uid}, "
            f"UID in object meta: {metadata['uid']}"
        )
        raise conflict(plural, group, name, why)
    if resource_version and resource_version != metadata["resourceVersion"]:
        why = (
            "the object has been modified; please apply your changes to the latest version and "
            "try again"
        )
        raise conflict(plural, group, name, why)
