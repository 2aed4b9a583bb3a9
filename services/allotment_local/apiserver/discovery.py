"""Discovery: which groups, versions and resources there are."""

from allotment_local.apiserver.errors import JsonObject, no_such_path
from allotment_local.apiserver.registry import Registry
from allotment_local.apiserver.resources import CONTAINER_ACCESS, Resource

VERBS = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]


# subresource -> (kind, group, version, verbs); of the resource's own kind where not named.
_SUBRESOURCES = {
    "binding": ("Binding", "", "v1", ["create"]),
    "eviction": ("Eviction", "policy", "v1", ["create"]),
    **{name: ("Pod", "", "v1", ["create", "get"]) for name in CONTAINER_ACCESS},
    "finalize": ("Namespace", "", "v1", ["update"]),
}


def _subresource(resource: Resource, name: str) -> tuple[str, str, str, list[str]]:
    own = (resource.kind, resource.group, resource.version, ["get", "patch", "update"])
    return _SUBRESOURCES.get(name, own)


def api_versions() -> JsonObject:
    return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}


def _group(name: str, versions: list[str]) -> JsonObject:
    shown = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"name": name, "versions": shown, "preferredVersion": shown[0]}


def group_list(registry: Registry) -> JsonObject:
    groups = [_group(name, list(versions)) for name, versions in registry.groups().items() if name]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}


def one_group(registry: Registry, name: str) -> JsonObject:
    versions = registry.groups().get(name)
    if not versions or not name:
        raise no_such_path()
    return {"kind": "APIGroup", "apiVersion": "v1", **_group(name, list(versions))}


def resource_list(registry: Registry, group: str, version: str) -> JsonObject:
    """APIResourceList of one group version. ApiError 404 when it is not served."""
    resources = registry.groups().get(group, {}).get(version)
    if resources is None:
        raise no_such_path()
    group_version = f"{group}/{version}" if group else version
    shown: list[JsonObject] = []
    for resource in resources:
        shown.append(
            {
                "name": resource.plural,
                "singularName": resource.singular,
                "namespaced": resource.namespaced,
                "kind": resource.kind,
                "verbs": VERBS,
                "shortNames": list(resource.short_names),
                "categories": list(resource.categories),
            }
        )
        for name in resource.subresources:
            kind, kind_group, kind_version, verbs = _subresource(resource, name)
            shown.append(
                {
                    "name": f"{resource.plural}/{name}",
                    "singularName": "",
                    "namespaced": resource.namespaced,
                    "group": kind_group,
                    "version": kind_version,
                    "kind": kind,
                    "verbs": verbs,
                }
            )
    if group_version == "v1":
        binding = {"name": "bindings", "singularName": "binding", "kind": "Binding"}
        shown.append({**binding, "namespaced": True, "verbs": ["create"]})
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": group_version,
        "resources": shown,
    }
