"""Choose a backend by environment variables."""

from __future__ import annotations

import os
from collections.abc import Mapping

from fairlane import backends
from fairlane.errors import ConfigurationError
from fairlane.urls import scheme_of


def url_from(environ: Mapping[str, str] | None = None) -> str | None:
    """Return the URL that the environment variables choose, or None if they choose none.

    `STM_TRANSPORT_BACKEND` names a backend. Then `FAIRLANE_<BACKEND>_URL` is its URL. Without it `FAIRLANE_URL`
    counts. A backend that needs no address, such as the in-memory one, has a default URL.

    Raises:
        ConfigurationError: the variables contradict each other, or they name a backend without a URL.
    """
    env = os.environ if environ is None else environ
    general = env.get("FAIRLANE_URL") or None
    name = (env.get("STM_TRANSPORT_BACKEND") or "").strip().lower()
    if not name:
        return general
    if name not in backends.MANIFESTS:
        known = ", ".join(backends.MANIFESTS)
        raise ConfigurationError(f"STM_TRANSPORT_BACKEND names no backend: {name!r}; known are {known}")
    variable = f"FAIRLANE_{name.upper()}_URL"
    specific = env.get(variable) or None
    if specific and general and specific != general:
        raise ConfigurationError(f"{variable} and FAIRLANE_URL differ: unset one of them")
    chosen = specific or general or backends.MANIFESTS[name].default_url
    if chosen is None:
        raise ConfigurationError(f"STM_TRANSPORT_BACKEND is {name}, so {variable} must be set")
    if backends.manifest_of(scheme_of(chosen)).name != name:
        holder = variable if specific else "FAIRLANE_URL"
        raise ConfigurationError(
            f"STM_TRANSPORT_BACKEND is {name}, but {holder} is a {scheme_of(chosen)}:// URL: unset one of them"
        )
    return chosen


def resolve_url(url: str | None) -> str:
    """Return this URL or, if it is None, the one that the environment variables choose.

    Raises:
        ConfigurationError: there is no URL, or the environment variables contradict each other.
    """
    chosen = url if url is not None else url_from()
    if chosen is None:
        raise ConfigurationError("no backend is chosen: pass a URL, or set FAIRLANE_URL")
    backends.manifest_of(scheme_of(chosen))
    return chosen
