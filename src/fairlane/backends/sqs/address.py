"""The URLs of SQS, and the arguments of its clients.

    sqs://eu-central-1/                                             AWS, with credentials as AWS's tools find them
    sqs://key:secret@eu-central-1/                                  AWS, with the credentials of the URL
    sqs://any:any@elasticmq/?endpoint=http://127.0.0.1:9324         another server with the same protocol

In credentials write the characters / + : @ % as percent escapes, such as %2F.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from fairlane.backends.shared.options import read_options
from fairlane.backends.sqs.options import OPTIONS
from fairlane.errors import ConfigurationError
from fairlane.urls import parse_url

CONNECT_SECONDS = 5.0
"""Maximum seconds to wait for a connection; at most a quarter of the time of a request."""

_REGION = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
USUAL = "sqs://region/, sqs://key:secret@region/ or sqs://key:secret@region/?endpoint=http://host:port"


@dataclass(frozen=True, slots=True)
class Address:
    """The parts of a URL. Its representation does not show the secret."""

    region: str
    endpoint: str | None
    max_connections: int
    timeout: float
    credentials: tuple[str, str] | None = field(default=None, repr=False)

    @property
    def host(self) -> str:
        """The host of the server, for messages."""
        if self.endpoint:
            return urlsplit(self.endpoint).netloc
        return f"sqs.{self.region}.amazonaws.com"


def parse(url: str, options: Mapping[str, object]) -> Address:
    """Return the parts of a URL, and the options.

    Raises:
        ConfigurationError: the URL or an option is wrong. The message contains no part of the credentials.
    """
    parts = parse_url(url, usual=USUAL)
    region = parts.hosts[0].name.lower()
    if len(parts.hosts) > 1 or parts.hosts[0].port is not None or parts.path not in ("", "/"):
        raise ConfigurationError(f"the URL of SQS has a region, and no port or path: {USUAL}")
    if not _REGION.fullmatch(region):
        raise ConfigurationError(f"the URL of SQS needs the name of a region, such as eu-central-1: {USUAL}")
    if parts.user is not None and not (parts.user and parts.password):
        raise ConfigurationError(f"the URL of SQS needs both key and secret before the @, or neither: {USUAL}")
    credentials = (parts.user, parts.password) if parts.user and parts.password else None
    return Address(region, credentials=credentials, **read_options("sqs", OPTIONS, url, options))


def client_arguments(address: Address, config: Any, seconds: float) -> dict[str, Any]:
    """Return the arguments for a client of boto3 or aiobotocore.

    Args:
        address: the parts of the URL.
        config: the class of the client's settings.
        seconds: how long a request may take.
    """
    connecting = min(CONNECT_SECONDS, seconds / 4)
    key, secret = address.credentials or (None, None)
    return {
        "region_name": address.region,
        "endpoint_url": address.endpoint,
        "aws_access_key_id": key,
        "aws_secret_access_key": secret,
        "config": config(
            connect_timeout=connecting,
            read_timeout=seconds - connecting,
            max_pool_connections=address.max_connections,
            # the programs repeat requests themselves, except deletes and changes of visibility
            retries={"total_max_attempts": 1},
            user_agent_extra="fairlane",
        ),
    }
