"""The table of all backends, and the choice of one by the scheme of a URL. Each backend is a folder with a manifest."""

from __future__ import annotations

from collections.abc import Mapping

from fairlane.backends import libsql, memory, mongo, postgres, redis, rqlite, sqlite, sqs
from fairlane.backends.manifest import Manifest
from fairlane.errors import ConfigurationError

MANIFESTS: Mapping[str, Manifest] = {
    backend.MANIFEST.name: backend.MANIFEST for backend in (memory, sqlite, postgres, redis, mongo, libsql, rqlite, sqs)
}
"""The manifests by name of the backend. They import no driver."""


def manifest_of(scheme: str) -> Manifest:
    """Return the manifest of the backend that has this URL scheme.

    Raises:
        ConfigurationError: no backend has it.
    """
    for manifest in MANIFESTS.values():
        if scheme in manifest.schemes:
            return manifest
    known = ", ".join(f"{scheme}://" for manifest in MANIFESTS.values() for scheme in manifest.schemes)
    raise ConfigurationError(f"no backend answers to {scheme}://; known are {known}")
