"""Options as people write them, in URLs or in Python, read alike by several backends."""

from __future__ import annotations

import ssl
from typing import Any

from fairlane.errors import ConfigurationError

_BOOLEANS = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}


def seconds(name: str, value: Any, *, smallest: float) -> float:
    """Return a number of seconds, up to an hour."""
    try:
        found = -1.0 if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        found = -1.0
    if not smallest <= found <= 3600:
        raise ConfigurationError(f"{name} must be {smallest:g} to 3600 seconds: {value!r}")
    return found


def count(name: str, value: Any, *, smallest: int) -> int:
    """Return a whole number, up to a million."""
    if isinstance(value, bool) or not isinstance(value, int) or not smallest <= value <= 1_000_000:
        raise ConfigurationError(f"{name} must be a whole number from {smallest} to 1,000,000: {value!r}")
    return value


def boolean(name: str, value: Any) -> bool:
    """Return yes or no."""
    found = value if isinstance(value, bool) else _BOOLEANS.get(str(value).lower())
    if found is None:
        raise ConfigurationError(f"{name} must be 1 or 0: {value!r}")
    return found


def ca_file(value: Any) -> str | None:
    """Return the path of a file of certificates: a wrong one is found now instead of with the first request."""
    if value is None:
        return None
    try:
        ssl.create_default_context(cafile=str(value))
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"ca_file is not a readable file of certificates (PEM): {value!r}: {error}") from error
    return str(value)


def check_options(backend: str, options: dict[str, Any], known: tuple[str, ...] = ()) -> None:
    """Refuse options that a backend does not have.

    Raises:
        ConfigurationError: naming them, and those that it has.
    """
    unknown = sorted(set(options) - set(known))
    if unknown:
        has = f"it takes {', '.join(known)}" if known else "it takes none"
        raise ConfigurationError(f"{backend} has no option {', '.join(unknown)}; {has}")
