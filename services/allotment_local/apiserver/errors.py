"""Errors as Kubernetes says them: every refusal is a `Status` object with a reason and a code.

The message texts follow the real server where clients or people look at them.
"""

from typing import Any, NamedTuple

JsonObject = dict[str, Any]


class ApiError(Exception):
    """A refused request. `code` is the HTTP status, `reason` the machine-readable word."""

    def __init__(
        self, code: int, reason: str, message: str, details: JsonObject | None = None
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details: JsonObject = details or {}

    def status(self) -> JsonObject:
        """The response body."""
        body: JsonObject = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
        }
        if self.details:
            body["details"] = self.details
        body["code"] = self.code
        return body


class FieldError(NamedTuple):
    """One field that is wrong: the cause inside a 422."""

    field: str
    reason: str
    message: str


def bad_value(field: str, value: object, why: str) -> FieldError:
    shown = f'"{value}"' if isinstance(value, str) else f"{value}"
    return FieldError(field, "FieldValueInvalid", f"Invalid value: {shown}: {why}")


def required(field: str, why: str = "") -> FieldError:
    return FieldError(field, "FieldValueRequired", f"Required value{': ' + why if why else ''}")


def forbidden_field(field: str, why: str) -> FieldError:
    return FieldError(field, "FieldValueForbidden", f"Forbidden: {why}")


def unsupported_value(field: str, value: object, allowed: tuple[str, ...]) -> FieldError:
    names = ", ".join(f'"{item}"' for item in allowed)
    message = f'Unsupported value: "{value}": supported values: {names}'
    return FieldError(field, "FieldValueNotSupported", message)


def duplicate(field: str, value: object) -> FieldError:
    return FieldError(field, "FieldValueDuplicate", f'Duplicate value: "{value}"')


def qualified(plural: str, group: str) -> str:
    """`pods`, `jobs.batch`: how messages name a resource."""
    return f"{plural}.{group}" if group else plural


def success(code: int = 200, details: JsonObject | None = None) -> JsonObject:
    """The body of a request that worked and has no object to show."""
    body: JsonObject = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
    if details:
        body["details"] = details
    body["code"] = code
    return body


def bad_request(message: str) -> ApiError:
    return ApiError(400, "BadRequest", message)


def unknown_fields(kind: str, version: str, paths: list[str]) -> ApiError:
    """400 under strict field validation."""
    listed = ", ".join(f'unknown field "{path}"' for path in paths)
    return bad_request(
        f'{kind} in version "{version}" cannot be handled: strict decoding error: {listed}'
    )


def _about(
    code: int, reason: str, plural: str, group: str, name: str, why: str, before: str = ""
) -> ApiError:
    """A refusal that names its object, in its text and in its details."""
    message = f'{before}{qualified(plural, group)} "{name}"{why}'
    return ApiError(code, reason, message, {"name": name, "group": group, "kind": plural})


def not_found(plural: str, group: str, name: str) -> ApiError:
    return _about(404, "NotFound", plural, group, name, " not found")


def no_such_path() -> ApiError:
    return ApiError(404, "NotFound", "the server could not find the requested resource")


def already_exists(plural: str, group: str, name: str) -> ApiError:
    return _about(409, "AlreadyExists", plural, group, name, " already exists")


def conflict(plural: str, group: str, name: str, why: str) -> ApiError:
    before = "Operation cannot be fulfilled on "
    return _about(409, "Conflict", plural, group, name, f": {why}", before)


def forbidden(plural: str, group: str, name: str, why: str) -> ApiError:
    return _about(403, "Forbidden", plural, group, name, f" is forbidden: {why}")


def invalid(kind: str, group: str, name: str, errors: list[FieldError]) -> ApiError:
    """422: the object was understood and is wrong; each cause names its field."""
    texts = [f"{error.field}: {error.message}" for error in errors]
    text = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    causes = [
        {"reason": error.reason, "message": error.message, "field": error.field} for error in errors
    ]
    return ApiError(
        422,
        "Invalid",
        f'{qualified(kind, group)} "{name}" is invalid: {text}',
        {"name": name, "group": group, "kind": kind, "causes": causes},
    )


def expired(asked: int, oldest: int) -> ApiError:
    """410: a watch or a page of a list that begins before what is still remembered."""
    return ApiError(410, "Expired", f"too old resource version: {asked} ({oldest})")


def resource_version_too_large(asked: int, current: int) -> ApiError:
    """504, as the real server says it; clients then ask again without a version."""
    return ApiError(
        504,
        "Timeout",
        f"Too large resource version: {asked}, current: {current}",
        {
            "causes": [
                {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
            ],
            "retryAfterSeconds": 1,
        },
    )


def unsupported_media_type(given: str, accepted: str) -> ApiError:
    return ApiError(
        415,
        "UnsupportedMediaType",
        f'the body of the request was in an unknown format ("{given}") - '
        f"accepted media types include: {accepted}",
    )


def not_acceptable(accepted: str) -> ApiError:
    return ApiError(
        406,
        "NotAcceptable",
        f"only the following media types are accepted: {accepted}",
    )


def method_not_allowed(method: str, path: str) -> ApiError:
    return ApiError(405, "MethodNotAllowed", f"the server does not allow {method} on {path}")


def too_many_requests(message: str, causes: list[JsonObject]) -> ApiError:
    return ApiError(429, "TooManyRequests", message, {"causes": causes})
