"""Read the URLs of Redis, and make clients of the driver from them. Making a client sends nothing."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import urlencode

import redis
import redis.asyncio
import redis.asyncio.retry
import redis.backoff
import redis.cluster
import redis.connection
import redis.retry

from fairlane.backends.redis.options import OPTIONS
from fairlane.backends.shared.options import read_options, seconds
from fairlane.errors import ConfigurationError
from fairlane.urls import Url, parse_url

DEFAULT_PORT = 6379
CONNECT_TIMEOUT = 5.0
DEFAULTS: Mapping[str, Any] = {
    "socket_connect_timeout": CONNECT_TIMEOUT,
    "socket_keepalive": True,
    # with protocol 3 the driver waits for pushed messages, and does not notice that a server has closed a connection
    "protocol": 2,
}
"""Options of the driver that a URL may override."""

_USUAL = "redis://user:password@host:6379/0, or redis+cluster://host:7000,host:7001 for the nodes of a cluster"
_IN_URL = (
    *("db", "username", "password", "client_name", "lib_name", "lib_version", "protocol", "legacy_responses"),
    *("socket_connect_timeout", "socket_keepalive", "socket_read_size"),
    *("health_check_interval", "retry_on_timeout", "decode_responses"),
    *("ssl_ca_certs", "ssl_ca_path", "ssl_ca_data", "ssl_certfile", "ssl_keyfile", "ssl_password", "ssl_cert_reqs"),
    *("ssl_check_hostname", "ssl_min_version", "ssl_ciphers", "ssl_include_verify_flags", "ssl_exclude_verify_flags"),
)
"""Options of the driver that the query of a URL may contain. The values of the others cannot be written as text."""


class Node(NamedTuple):
    """One server."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """The address of a server or cluster, and the options of its connections.

    Attributes:
        nodes: the server, or those nodes of a cluster that are asked for the other nodes.
        cluster: whether it is a cluster.
        shown: for messages; without a password.
        tls: whether connections are encrypted.
        settings: keyword arguments for connections of the driver.
        max_connections, timeout, allow_eviction, wait_replicas: see `options.OPTIONS`.
    """

    nodes: tuple[Node, ...]
    cluster: bool
    shown: str
    tls: bool
    settings: Mapping[str, Any] = field(repr=False)
    max_connections: int
    timeout: float
    allow_eviction: bool
    wait_replicas: int


def parse(url: str, **options: object) -> Address:
    """Read a URL: `redis://`, `rediss://` (TLS), or one of these with `+cluster` and `host:port,host:port`.

    Args:
        url: its query may have the options of this backend, and those of redis-py, such as `ssl_ca_certs`.
        options: see `options.RedisOptions`. They override the options of the URL.

    Raises:
        ConfigurationError: the URL or an option is wrong.
    """
    parts = parse_url(url, usual=_USUAL, needs_host=False)
    read = read_options("redis", OPTIONS, url, options, others=True)
    scheme, cluster, _ = parts.scheme.partition("+")
    hosts = tuple(Node(host.name or "localhost", host.port or DEFAULT_PORT) for host in parts.hosts)
    if not cluster and len(hosts) > 1:
        raise ConfigurationError("several hosts are the nodes of a Redis cluster: use a redis+cluster:// URL")
    address = Address(
        nodes=hosts or (Node("localhost", DEFAULT_PORT),),
        cluster=bool(cluster),
        shown=parts.shown,
        tls=scheme == "rediss",
        settings={
            **DEFAULTS,
            **(others := _driver_options(parts, scheme)),
            **_login(parts, others),
            **_database(parts, bool(cluster), others),
        },
        **read,
    )
    _check(address)
    return address


def _login(parts: Url, others: Mapping[str, Any]) -> dict[str, str]:
    found = {"username": parts.user, "password": parts.password}
    if twice := [name for name, value in found.items() if value and name in others]:
        raise ConfigurationError(f"the URL has a {' and a '.join(twice)} both before the host and in its query")
    return {name: value for name, value in found.items() if value}


def _database(parts: Url, cluster: bool, others: Mapping[str, Any]) -> dict[str, int]:
    number = parts.path.strip("/")
    if number and (parts.path != f"/{number}" or not (number.isascii() and number.isdecimal())):
        raise ConfigurationError("the path of a Redis URL is the number of a database, such as redis://host:6379/0")
    found = {int(number)} if number else set()
    if "db" in others:
        found.add(others["db"])
    if len(found) > 1:
        raise ConfigurationError("the path and the query of the URL name different databases: leave one of them out")
    if cluster and found - {0}:
        raise ConfigurationError("a Redis cluster has database 0 only: leave the number out of the URL")
    return {"db": found.pop()} if found and not cluster else {}


def _driver_options(parts: Url, scheme: str) -> dict[str, Any]:
    """Return the options of redis-py in the URL, converted to their types."""
    own = {name for option in OPTIONS for name in (option.name, *option.aliases)}
    rest = {name: value for name, value in parts.options.items() if name not in own}
    if refused := sorted(set(rest) - set(_IN_URL)):
        raise ConfigurationError(f"redis has no option {', '.join(refused)} in its URL")
    if "socket_connect_timeout" in rest:
        seconds(0.001)("socket_connect_timeout", rest["socket_connect_timeout"])
    read: Any = redis.connection.parse_url
    try:
        found: dict[str, Any] = read(f"{scheme}://localhost?{urlencode(rest)}")
    except ValueError as error:
        raise ConfigurationError(f"the URL of redis at {parts.shown} is wrong: {error}") from error
    return {name: value for name, value in found.items() if name in rest}


_TLS: Mapping[str, Callable[[ssl.SSLContext, Mapping[str, Any]], object]] = {
    "ssl_ca_certs": lambda context, s: context.load_verify_locations(cafile=s["ssl_ca_certs"]),
    "ssl_ca_path": lambda context, s: context.load_verify_locations(capath=s["ssl_ca_path"]),
    "ssl_ca_data": lambda context, s: context.load_verify_locations(cadata=s["ssl_ca_data"]),
    "ssl_certfile": lambda context, s: context.load_cert_chain(
        s["ssl_certfile"], s.get("ssl_keyfile"), s.get("ssl_password")
    ),
    "ssl_ciphers": lambda context, s: context.set_ciphers(s["ssl_ciphers"]),
    "ssl_min_version": lambda context, s: setattr(context, "minimum_version", ssl.TLSVersion(s["ssl_min_version"])),
}
"""What the driver does with an option when it connects. It fails if the value is wrong."""


def _check(address: Address) -> None:
    """Refuse wrong options of the driver now. The driver itself refuses them only when it connects."""
    for name, use in _TLS.items() if address.tls else ():
        if name in address.settings:
            try:
                use(ssl.create_default_context(), address.settings)
            except (OSError, ValueError, TypeError) as error:
                raise ConfigurationError(f"{name} in the URL of redis at {address.shown} is wrong: {error}") from error
    try:
        make_connection(address, address.nodes[0])
        make_async_connection(address, address.nodes[0])
    except (ValueError, TypeError, redis.exceptions.RedisError) as error:
        # the driver's text may contain the value of an option, but never the password
        raise ConfigurationError(f"the URL of redis at {address.shown} is wrong: {error}") from error


def _no_retry(module: Any) -> Any:
    """Return a policy without retries, since a repeated publish would add a second message."""
    return module.Retry(redis.backoff.NoBackoff(), 0)


def _settings(address: Address, node: Node, timeout: float | None) -> dict[str, Any]:
    longest = address.timeout if timeout is None else timeout
    connect = min(longest, address.settings["socket_connect_timeout"])
    times = {"socket_timeout": longest, "socket_connect_timeout": connect}
    return {**address.settings, "host": node.host, "port": node.port, **times}


def make_connection(address: Address, node: Node, timeout: float | None = None) -> redis.connection.AbstractConnection:
    """Return a blocking connection of the driver, which is not connected yet.

    Args:
        timeout: seconds for each step of connecting; None means the timeout of the address.
    """
    cls: Any = redis.connection.SSLConnection if address.tls else redis.connection.Connection
    made: redis.connection.AbstractConnection = cls(**_settings(address, node, timeout), retry=_no_retry(redis.retry))
    return made


def make_async_connection(
    address: Address, node: Node, timeout: float | None = None
) -> redis.asyncio.connection.AbstractConnection:
    """Return a connection of the driver for asyncio, which is not connected yet."""
    cls: Any = redis.asyncio.SSLConnection if address.tls else redis.asyncio.Connection
    made: redis.asyncio.connection.AbstractConnection = cls(
        **_settings(address, node, timeout), retry=_no_retry(redis.asyncio.retry)
    )
    return made


def make_client(address: Address, *, database: int | None = None) -> redis.Redis:
    """Return the driver's client for a single server, for migrations."""
    cls = redis.connection.SSLConnection if address.tls else redis.connection.Connection
    settings = _settings(address, address.nodes[0], None)
    if database is not None:
        settings["db"] = database
    pool: Any = redis.ConnectionPool(connection_class=cls, **settings, retry=_no_retry(redis.retry))
    return redis.Redis.from_pool(pool)


def make_cluster(address: Address) -> redis.RedisCluster:
    """Return the driver's client for a cluster, for migrations. It connects to find the nodes."""
    node: Any = redis.cluster.ClusterNode
    nodes = [node(*each) for each in address.nodes]
    settings = _settings(address, address.nodes[0], None)
    for name in ("host", "port", "db"):
        settings.pop(name, None)
    return redis.RedisCluster(startup_nodes=nodes, **settings, ssl=address.tls, retry=_no_retry(redis.retry))


def shown_of(client: object) -> str:
    """Return the host of the application's client, for messages."""
    pool = getattr(client, "connection_pool", None)
    settings = getattr(pool, "connection_kwargs", {})
    if "path" in settings:
        return str(settings["path"])
    if "host" in settings:
        return f"{settings['host']}:{settings.get('port', DEFAULT_PORT)}"
    return str(getattr(pool, "service_name", "the application's client"))
