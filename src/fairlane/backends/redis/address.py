"""URLs of Redis: what they say, and clients made from them. Making a client here sends nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, unquote_to_bytes, urlencode, urlsplit, urlunsplit

import redis
import redis.asyncio
import redis.asyncio.cluster
import redis.asyncio.retry
import redis.backoff
import redis.cluster
import redis.connection
import redis.retry

from fairlane.backends.shared.options import seconds
from fairlane.errors import ConfigurationError
from fairlane.urls import host_of, split_url

MAX_CONNECTIONS = 64
DEFAULTS: dict[str, Any] = {
    # without these a dead server would hang a worker for ever
    "socket_connect_timeout": 5.0,
    "socket_timeout": 30.0,
    "socket_keepalive": True,
    # in version 3 the driver waits for pushed messages, and no longer sees when a server has closed an idle connection
    "protocol": 2,
}
"""Options of the driver that a URL may override."""

_TRUE = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}


@dataclass(frozen=True, slots=True)
class Address:
    """Where Redis is.

    Attributes:
        url: for the driver, without Fairlane's own options; the first node's for a cluster.
        nodes: hosts and ports of a cluster; empty for a single server.
        host: for messages; holds no password.
        allow_eviction: work with a server that may throw messages away.
        max_connections: how many calls may be under way at once; further ones wait.
    """

    url: str
    nodes: tuple[tuple[str, int], ...]
    host: str
    allow_eviction: bool
    max_connections: int


def parse(url: str, *, allow_eviction: bool = False, max_connections: int = MAX_CONNECTIONS) -> Address:
    """Read a URL: `redis://`, `rediss://` (TLS), or either with `+cluster` and several `host:port` after commas.

    Args:
        url: its query may hold the two options below, and those of redis-py, such as `socket_timeout`.
        allow_eviction: work with a server whose eviction policy is not `noeviction`.
        max_connections: how many calls may be under way at once; further ones wait.

    Raises:
        ConfigurationError: the URL or an option is wrong.
    """
    parts = split_url(url)
    if "@" in parts.path + parts.query + parts.fragment:
        raise _malformed()  # it ended a password that holds an unescaped / ? or #
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    evict = _boolean("allow_eviction", query.pop("allow_eviction", allow_eviction))
    limit = _count("max_connections", query.pop("max_connections", max_connections))
    _check_patience(query)
    scheme, cluster, _ = parts.scheme.partition("+")
    login, at, hosts = parts.netloc.rpartition("@")
    nodes = tuple(_node(each) for each in hosts.split(","))
    if cluster and parts.path.strip("/") not in ("", "0"):
        raise ConfigurationError("a Redis cluster has database 0 only: leave the path out of the URL")
    if not cluster and len(nodes) > 1:
        raise ConfigurationError("several hosts are the nodes of a Redis cluster: use a redis+cluster:// URL")
    first = hosts.split(",")[0] or "localhost"
    plain = urlunsplit((scheme, login + at + first, parts.path, urlencode(query), ""))
    address = Address(plain, nodes if cluster else (), host_of(url), evict, limit)
    _check(address)
    return address


def _boolean(name: str, value: Any) -> bool:
    found = value if isinstance(value, bool) else _TRUE.get(str(value).lower())
    if found is None:
        raise ConfigurationError(f"{name} must be 1 or 0: {value!r}")
    return found


def _count(name: str, value: Any) -> int:
    if isinstance(value, bool) or not str(value).isdecimal() or int(value) < 1:
        raise ConfigurationError(f"{name} must be a whole number from 1 on: {value!r}")
    return int(value)


def _node(text: str) -> tuple[str, int]:
    try:
        parts = urlsplit(f"//{text}")
        host = parts.hostname or "localhost"
        host.encode("idna")  # as the look-up of names will
        return host, parts.port or 6379
    except ValueError:
        raise _malformed() from None


def _malformed() -> ConfigurationError:
    """Return an error that repeats no part of the URL: of one that is malformed, any part may be of the password."""
    return ConfigurationError(
        "this is not a URL of Redis, which looks like redis://user:password@host:6379/0: special characters of user "
        "and password are percent-encoded, hosts of a cluster (redis+cluster://) stand between commas"
    )


def _check(address: Address) -> None:
    """Find wrong options now instead of on the first call: the driver takes any, and fails when it connects."""
    try:
        address.url.encode()
        unquote_to_bytes(urlsplit(address.url).netloc).decode()
    except ValueError:
        raise _malformed() from None
    try:
        pool = redis.ConnectionPool.from_url(address.url, **DEFAULTS)
        pool.connection_class(**pool.connection_kwargs)
        if address.nodes:
            make_async_cluster(address)  # connects later, and takes fewer options than the blocking one
    except (ValueError, TypeError, redis.exceptions.RedisError) as error:
        # the driver's text may repeat an option's value, never the password: what it stands in was read before
        raise ConfigurationError(f"the URL of redis at {address.host} is wrong: {error}") from error


def _check_patience(query: dict[str, str]) -> None:
    for name in ("socket_timeout", "socket_connect_timeout"):
        if name in query:
            seconds(0.001)(name, query[name])


def _no_retry(module: Any) -> Any:
    """Return the policy of sending everything once: a repeated ack or publish would be another ack or publish."""
    return module.Retry(redis.backoff.NoBackoff(), 0)


def make_pool(address: Address) -> redis.ConnectionPool:
    """Return a pool of blocking connections; a call waits when all of them are in use."""
    return redis.BlockingConnectionPool.from_url(
        address.url,
        **DEFAULTS | {"max_connections": address.max_connections, "timeout": None, "retry": _no_retry(redis.retry)},
    )


def make_async_pool(address: Address) -> redis.asyncio.ConnectionPool:
    """Return a pool of asyncio connections without a limit; the executor limits the calls."""
    retry = _no_retry(redis.asyncio.retry)
    return redis.asyncio.ConnectionPool.from_url(address.url, **DEFAULTS | {"retry": retry})


def make_cluster(address: Address) -> redis.RedisCluster:
    """Return a client of a cluster; connects to find the nodes."""
    node: Any = redis.cluster.ClusterNode
    nodes = [node(host, port) for host, port in address.nodes]
    return redis.RedisCluster(startup_nodes=nodes, **_cluster_options(address), retry=_no_retry(redis.retry))


def make_async_cluster(address: Address) -> redis.asyncio.RedisCluster:
    """Return an asyncio client of a cluster; it connects on first use."""
    nodes = [redis.asyncio.cluster.ClusterNode(host, port) for host, port in address.nodes]
    retry = _no_retry(redis.asyncio.retry)
    return redis.asyncio.RedisCluster(startup_nodes=nodes, **_cluster_options(address), retry=retry)


def _cluster_options(address: Address) -> dict[str, Any]:
    parse_url: Any = redis.connection.parse_url
    options = DEFAULTS | dict(parse_url(address.url))
    for name in ("host", "port", "db"):
        options.pop(name, None)
    kind = options.pop("connection_class", None)
    return options | {"ssl": kind is not None}


def client_options(*, allow_eviction: bool = False) -> bool:
    """Return `allow_eviction`, the one option that goes with a client of the application."""
    return _boolean("allow_eviction", allow_eviction)


def address_of(client: Any) -> str:
    """Return where a client of the application points, for messages."""
    pool = getattr(client, "connection_pool", None)
    settings = getattr(pool, "connection_kwargs", {})
    if "path" in settings:
        return str(settings["path"])
    if "host" in settings:
        return f"{settings['host']}:{settings.get('port', 6379)}"
    return str(getattr(pool, "service_name", "the application's client"))
