"""The URL of the in-memory backend."""

from __future__ import annotations

from fairlane.errors import ConfigurationError
from fairlane.urls import parse_url


def check_url(url: str) -> None:
    """Refuse a URL that says something which would not count: queues differ by their names only.

    Raises:
        ConfigurationError: it has a host, a path, a user or a password. Options are read elsewhere.
    """
    parts = parse_url(url, usual="memory://", needs_host=False)
    if parts.hosts or parts.path or parts.user is not None or parts.password is not None:
        raise ConfigurationError(
            "the URL of a queue in memory is memory:// and no more: queues differ by their names, as in "
            "connect('memory://', 'orders')"
        )
