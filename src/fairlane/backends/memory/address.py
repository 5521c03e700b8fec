"""Check the URL of the in-memory backend."""

from __future__ import annotations

from fairlane.errors import ConfigurationError
from fairlane.urls import parse_url


def check_url(url: str) -> None:
    """Refuse a URL with parts that would be ignored: only the name of a queue tells queues apart.

    Raises:
        ConfigurationError: the URL has a host, a path, a user or a password. `read_options` checks its options.
    """
    parts = parse_url(url, usual="memory://", needs_host=False)
    if parts.hosts or parts.path or parts.user is not None or parts.password is not None:
        raise ConfigurationError(
            "the URL of a queue in memory is memory:// without any other part: name the queue instead, as in "
            "connect('memory://', 'orders')"
        )
