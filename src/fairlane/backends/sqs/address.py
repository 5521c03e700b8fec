"""URLs of SQS, and what clients are made with.

    sqs://eu-central-1/                                             AWS, credentials as AWS's own tools find them
    sqs://key:secret@eu-central-1/                                  credentials of the URL
    sqs://any:any@elasticmq/?endpoint=http://127.0.0.1:9324         another server that speaks the protocol

Credentials with the characters / + : @ % have these written as %2F and so on.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlsplit

from fairlane.errors import ConfigurationError
from fairlane.urls import options_of

CONNECT_SECONDS = 5
ANSWER_SECONDS = 20
MAX_CONNECTIONS = 50

_REGION = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
_HINT = "write sqs://region/, sqs://key:secret@region/ or sqs://key:secret@region/?endpoint=http://host:port"


@dataclass(frozen=True, slots=True)
class Address:
    """What a URL says. The secret is not shown."""

    region: str
    endpoint: str | None = None
    credentials: tuple[str, str] | None = field(default=None, repr=False)

    @property
    def host(self) -> str:
        """Where the server is, for messages."""
        if self.endpoint:
            return urlsplit(self.endpoint).netloc
        return f"sqs.{self.region}.amazonaws.com"


def parse(url: str) -> Address:
    """Return the parts of a URL.

    Raises:
        ConfigurationError: it is wrong. The text holds no part of the credentials.
    """
    rest = url.partition("://")[2]
    authority, _, path = rest.partition("?")[0].partition("/")
    user, at, region = authority.rpartition("@")
    if path or not _REGION.fullmatch(region.lower()):
        raise ConfigurationError(f"the SQS URL is wrong: {_HINT}; / + : @ % in credentials as %2F and so on")
    key, colon, secret = user.partition(":")
    if at and not (key and colon and secret):
        raise ConfigurationError(f"the SQS URL needs both key and secret before the @, or neither: {_HINT}")
    options = options_of(url)
    if unknown := sorted(set(options) - {"endpoint"}):
        raise ConfigurationError(f"sqs has no option {', '.join(unknown)} in its URL; it takes endpoint")
    credentials = (unquote(key), unquote(secret)) if at else None
    return Address(region.lower(), _endpoint(options["endpoint"]) if "endpoint" in options else None, credentials)


def _endpoint(text: str) -> str:
    try:
        parts = urlsplit(text)
        fits = parts.scheme in ("http", "https") and parts.hostname and (parts.port is None or parts.port > 0)
    except ValueError:
        fits = False
    if not fits or parts.username is not None or parts.path not in ("", "/") or parts.query or parts.fragment:
        raise ConfigurationError("the endpoint in the SQS URL must be http://host:port or https://host:port, no more")
    return f"{parts.scheme}://{parts.netloc}"


def client_arguments(address: Address, config: Any, connections: int = MAX_CONNECTIONS) -> dict[str, Any]:
    """Return what a client of boto3 or aiobotocore is made with.

    Args:
        address: where.
        config: the class of its settings.
        connections: the most that are kept open.
    """
    key, secret = address.credentials or (None, None)
    return {
        "region_name": address.region,
        "endpoint_url": address.endpoint,
        "aws_access_key_id": key,
        "aws_secret_access_key": secret,
        "config": config(
            connect_timeout=CONNECT_SECONDS,
            read_timeout=ANSWER_SECONDS,
            max_pool_connections=connections,
            # programs repeat what may be repeated; a delete or a change of visibility may not
            retries={"total_max_attempts": 1},
            user_agent_extra="fairlane",
        ),
    }


def check_connections(options: Mapping[str, Any]) -> int:
    """Return the option `max_connections`."""
    value = options.get("max_connections", MAX_CONNECTIONS)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ConfigurationError(f"max_connections must be an int of at least 1: {value!r:.100}")
    return value
