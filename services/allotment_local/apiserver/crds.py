"""Custom resource definitions: checked, marked established, and turned into served resources."""

from allotment_local.apiserver.errors import (
    FieldError,
    JsonObject,
    bad_value,
    duplicate,
    invalid,
    required,
)
from allotment_local.apiserver.printers import custom_columns
from allotment_local.apiserver.resources import (
    BUILTINS,
    META_FIELDS,
    Convert,
    Resource,
    ResourceKey,
)


def check_definition(definition: JsonObject) -> None:
    """ApiError 422 unless resources can be served from it."""
    spec = definition.get("spec") or {}
    names, versions = spec.get("names") or {}, spec.get("versions") or []
    errors: list[FieldError] = [
        required(f"spec.names.{name}") for name in ("plural", "kind") if not names.get(name)
    ]
    if not spec.get("group"):
        errors.append(required("spec.group"))
    if any(r.key == (spec.get("group"), names.get("plural")) for r in BUILTINS):
        errors.append(bad_value("spec.names.plural", names["plural"], "is a built-in resource"))
    if spec.get("scope") not in ("Namespaced", "Cluster"):
        errors.append(
            bad_value("spec.scope", spec.get("scope", ""), 'must be "Namespaced" or "Cluster"')
        )
    name, wanted = definition["metadata"]["name"], f"{names.get('plural')}.{spec.get('group')}"
    if name != wanted:
        errors.append(
            bad_value("metadata.name", name, f'must be spec.names.plural+"."+spec.group: {wanted}')
        )
    if sum(bool(version.get("storage")) for version in versions) != 1:
        errors.append(
            bad_value(
                "spec.versions",
                len(versions),
                "must have exactly one version marked as storage version",
            )
        )
    version_names: set[str] = set()
    for index, version in enumerate(versions):
        if not version.get("name"):
            errors.append(required(f"spec.versions[{index}].name"))
        elif version["name"] in version_names:
            errors.append(duplicate(f"spec.versions[{index}].name", version["name"]))
        version_names.add(version.get("name", ""))
        if any("jsonPath" not in field for field in version.get("selectableFields") or ()):
            errors.append(required(f"spec.versions[{index}].selectableFields[*].jsonPath"))
        if not (version.get("schema") or {}).get("openAPIV3Schema"):
            errors.append(
                required(f"spec.versions[{index}].schema.openAPIV3Schema", "schemas are required")
            )
        try:
            custom_columns(version.get("additionalPrinterColumns") or [])
        except (KeyError, ValueError) as error:
            field = f"spec.versions[{index}].additionalPrinterColumns"
            errors.append(bad_value(field, str(error), "is not a column this server can print"))
    if errors:
        raise invalid("CustomResourceDefinition", "apiextensions.k8s.io", name, errors)


def established(definition: JsonObject, now: str) -> JsonObject:
    """The definition with its names accepted: it is served from this very write on."""
    spec = definition["spec"]
    names = {
        **spec["names"],
        "singular": spec["names"].get("singular") or spec["names"]["kind"].lower(),
        "listKind": spec["names"].get("listKind") or f"{spec['names']['kind']}List",
    }
    reasons = (("NamesAccepted", "NoConflicts"), ("Established", "InitialNamesAccepted"))
    status = {
        "acceptedNames": names,
        "storedVersions": [v["name"] for v in spec["versions"] if v.get("storage")],
        "conditions": [
            {
                "type": kind,
                "status": "True",
                "reason": reason,
                "message": "no conflicts found" if kind == "NamesAccepted" else "names accepted",
                "lastTransitionTime": now,
            }
            for kind, reason in reasons
        ],
    }
    conversion = spec.get("conversion") or {"strategy": "None"}
    return {
        **definition,
        "spec": {**spec, "names": names, "conversion": conversion},
        "status": status,
    }


def _in_version(api_version: str) -> Convert:
    return lambda obj: {**obj, "apiVersion": api_version}


def custom_resources(definition: JsonObject) -> tuple[list[Resource], Resource]:
    """`(faces served, stored form)` of an established definition."""
    spec = definition["spec"]
    names, group = spec["names"], spec["group"]
    storage = next(version for version in spec["versions"] if version.get("storage"))
    stored_api_version = f"{group}/{storage['name']}"
    faces: list[Resource] = []
    stored: Resource | None = None
    for version in spec["versions"]:
        is_storage = version is storage
        face = Resource(
            key=ResourceKey(group, names["plural"]),
            group=group,
            version=version["name"],
            kind=names["kind"],
            namespaced=spec["scope"] == "Namespaced",
            singular=names["singular"],
            short_names=tuple(names.get("shortNames") or ()),
            categories=tuple(names.get("categories") or ()),
            subresources=tuple(
                name for name in (version.get("subresources") or {}) if name == "status"
            ),
            columns=custom_columns(version.get("additionalPrinterColumns") or []),
            fields=META_FIELDS
            | {field["jsonPath"].lstrip(".") for field in version.get("selectableFields") or []},
            custom=True,
            schema=version["schema"]["openAPIV3Schema"],
            from_wire=None if is_storage else _in_version(stored_api_version),
            to_wire=None if is_storage else _in_version(f"{group}/{version['name']}"),
        )
        if is_storage:
            stored = face
        if version.get("served"):
            faces.append(face)
    assert stored is not None
    return faces, stored
