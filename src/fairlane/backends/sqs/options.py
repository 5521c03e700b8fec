"""The options of the SQS backend."""

from __future__ import annotations

from urllib.parse import urlsplit

from typing_extensions import TypedDict

from fairlane.backends.manifest import Option
from fairlane.backends.shared.options import count, seconds
from fairlane.errors import ConfigurationError


class SqsOptions(TypedDict, total=False):
    """The options of `SqsTransport.from_url` and of the query of a URL. `OPTIONS` documents them."""

    endpoint: str
    max_connections: int
    timeout: float


def _endpoint(name: str, value: object) -> str:
    """Read `http://host:port` or `https://host:port`."""
    try:
        parts = urlsplit(str(value))
        fits = parts.scheme in ("http", "https") and parts.hostname and (parts.port is None or parts.port > 0)
    except ValueError:
        fits = False
    if not fits or parts.username is not None or parts.path not in ("", "/") or parts.query or parts.fragment:
        raise ConfigurationError(f"the {name} of SQS must be http://host:port or https://host:port without a path")
    return f"{parts.scheme}://{parts.netloc}"


OPTIONS = (
    Option(
        "endpoint",
        _endpoint,
        default=None,
        doc="A server other than AWS with the protocol of SQS, `http://host:port` or `https://host:port`.",
    ),
    Option(
        "max_connections",
        count(1),
        default=50,
        unit="connections",
        doc="The largest number of open connections.",
    ),
    Option(
        "timeout",
        seconds(3),
        default=30.0,
        unit="seconds",
        doc="How long a call may take in total, 3 to 3,600; a claim may wait for a second. A client of the application "
        "has its own timeouts: `connect_timeout` and `read_timeout` of its `Config`.",
    ),
)
