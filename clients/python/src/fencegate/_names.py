"""Names of locks, resources and keys in paths."""

from __future__ import annotations

from urllib.parse import quote

from .errors import local

_RESERVED = {"acquire", "renew", "release", "break", "watch", "records", "fence"}


def name_path(name: str) -> str:
    """Escapes each segment of a name. It refuses names that would arrive as another name or another operation; the
    gateway checks all other rules."""
    segments = name.split("/")
    for segment in segments:
        if segment in ("", ".", ".."):
            raise local("invalid_name", f"{name!r}: no segment of a name is empty, . or ..")
        if segment in _RESERVED:
            raise local("invalid_name", f"{name!r}: {segment} is a word of the API, and can't be a segment of a name")
    return "/".join(quote(segment, safe="") for segment in segments)


def record_path(resource: str, key: str) -> str:
    return f"/v1/resources/{name_path(resource)}/records/{name_path(key)}"
