"""Servers of libSQL and rqlite on which a test can let the next writing request fail, and a list of such faults.

Both backends send a request again when it was certainly not carried out, or when carrying it out twice does no harm. So
both must survive the same faults.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import pytest

from tests.backends.libsql import relay
from tests.backends.libsql.relay import Relay
from tests.harness.kits.base import Kit
from tests.harness.kits.libsql import LibsqlKit
from tests.harness.kits.rqlite import OwnRqliteKit
from tests.harness.proxy import Proxy
from tests.servers import Server, rqlite
from tests.servers.rqlite import Cluster

Kind = Literal["certain", "applied", "not applied", "late", "twice"]
"""What happens to the request. "certain": the caller knows that it was not carried out. "applied": it was carried out,
but the caller cannot know this. "not applied": it was not carried out, and the caller cannot know this. "late": it is
carried out after the caller has stopped waiting. "twice": it is carried out twice."""

SLOW = 3.6
"""Seconds that a slow answer takes. It is longer than one request may take."""

OPTIONS: dict[str, Any] = {"timeout": 9.0}
"""Options of the transports. One request gets 3 seconds."""


class Breakable(ABC):
    """One server whose next writing requests can be made to fail."""

    backend: ClassVar[str]
    refusal: ClassVar[str]
    """What an error says of a server that refuses requests before it does anything."""

    kit: Kit
    url: str
    """The URL that a transport uses."""

    @abstractmethod
    def lose_answers(self, times: int = 1) -> None:
        """Let the server carry out the next writes, and break the connection before it answers."""

    @abstractmethod
    def refuse(self, times: int, *, skip: int = 0) -> None:
        """Refuse writes before anything is changed; `skip` writes pass first."""

    @abstractmethod
    def delay(self, seconds: float, *, after: bool) -> None:
        """Let the next write wait before it is carried out or, with `after`, before it is answered.

        On rqlite the write still uses the time from before the wait.
        """

    @abstractmethod
    def clear(self) -> None:
        """Remove all faults that are still to come."""

    @property
    @abstractmethod
    def pending(self) -> int:
        """The number of failures still to come; 0 proves that each one took place."""

    @property
    @abstractmethod
    def sent(self) -> int:
        """The number of requests that have arrived so far."""


class BreakableRqlite(Breakable):
    backend = "rqlite"
    refusal = "does not know a leader"

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.kit = OwnRqliteKit(cluster.url)
        self.url = cluster.url

    def lose_answers(self, times: int = 1) -> None:
        self.cluster.faults.drop_answers(times, endpoint="execute")

    def refuse(self, times: int, *, skip: int = 0) -> None:
        self.cluster.faults.reply(503, "leader not found", times, endpoint="execute", skip=skip)

    def delay(self, seconds: float, *, after: bool) -> None:
        self.cluster.faults.slow(seconds, 1, after=after, endpoint="execute")

    def clear(self) -> None:
        self.cluster.faults.clear()

    @property
    def pending(self) -> int:
        return self.cluster.faults.pending

    @property
    def sent(self) -> int:
        return len(self.cluster.seen)


class BreakableLibsql(Breakable):
    backend = "libsql"
    refusal = "busy"

    def __init__(self, server: Server, between: Relay) -> None:
        self.relay = between
        self.kit = LibsqlKit()
        self.kit.server_url = server.url
        self.url = between.url

    def lose_answers(self, times: int = 1) -> None:
        self.relay.fail(relay.lose, times)

    def refuse(self, times: int, *, skip: int = 0) -> None:
        self.relay.fail(relay.busy, times, skip=skip)

    def delay(self, seconds: float, *, after: bool) -> None:
        self.relay.fail((relay.slow if after else relay.late)(seconds))

    def clear(self) -> None:
        self.relay.clear()

    @property
    def pending(self) -> int:
        return self.relay.pending

    @property
    def sent(self) -> int:
        return len(self.relay.seen)


@dataclass(frozen=True)
class Fault:
    """Something that goes wrong with the next request that writes.

    Attributes:
        arrange: prepares the fault; its argument is the cluster (rqlite) or the relay in front of the server (libSQL).
    """

    backend: str
    kind: Kind
    name: str
    arrange: Callable[[Any], object]

    def happen(self, server: Breakable) -> None:
        self.arrange(server.cluster if isinstance(server, BreakableRqlite) else server.relay)  # type: ignore[attr-defined]


def _stop_after_a_change(cluster: Cluster) -> None:
    cluster.change_leader(1)
    cluster.stop_node(0)


RQLITE: dict[Kind, dict[str, Callable[[Cluster], object]]] = {
    "certain": {
        "another leader": lambda cluster: cluster.change_leader(2),
        "no leader for a moment": lambda cluster: cluster.lose_leader(0.3),
        "the leader is down": lambda cluster: cluster.stop_node(cluster.leader or 0),
        "a follower is down": lambda cluster: cluster.stop_node(2),
        "the next leader's predecessor is down": _stop_after_a_change,
    },
    "applied": {
        "the answer is lost": lambda cluster: cluster.faults.drop_answers(1, endpoint="execute"),
        "the leadership is lost, yet it is written": lambda cluster: cluster.faults.raft_error(1, applied=True),
        "the answer comes too late": lambda cluster: cluster.faults.slow(SLOW, 1, after=True, endpoint="execute"),
    },
    "not applied": {
        "the connection breaks first": lambda cluster: cluster.faults.refuse(1, endpoint="execute"),
        "the leadership is lost, and nothing is written": lambda cluster: cluster.faults.raft_error(1),
        "a proxy's 502": lambda cluster: cluster.faults.reply(502, "bad gateway", endpoint="execute"),
        "a proxy's 503": lambda cluster: cluster.faults.reply(503, "upstream gone", endpoint="execute"),
        "an error of the node": lambda cluster: cluster.faults.reply(500, "oops", endpoint="execute"),
    },
    "late": {"it arrives late": lambda cluster: cluster.faults.slow(SLOW, 1, endpoint="execute")},
    "twice": {"it is applied twice": lambda cluster: cluster.faults.apply_twice(1, endpoint="execute")},
}
LIBSQL: dict[Kind, dict[str, relay.Fault]] = {
    "certain": {"others write": relay.busy, "too many connections": relay.status(429)},
    "applied": {
        "the answer is lost": relay.lose,
        "the answer comes too late": relay.slow(SLOW),
        "the answer is garbage": relay.garbage,
    },
    "not applied": {
        "the connection breaks first": relay.refuse,
        "a proxy's 502": relay.status(502),
        "an error of the server": relay.status(500),
    },
    "late": {"it arrives late": relay.late(SLOW)},
    "twice": {"it is applied twice": relay.twice},
}
FAULTS = [
    *(Fault("rqlite", kind, name, arrange) for kind, faults in RQLITE.items() for name, arrange in faults.items()),
    *(
        Fault("libsql", kind, name, lambda between, fault=fault: between.fail(fault))  # type: ignore[misc]
        for kind, faults in LIBSQL.items()
        for name, fault in faults.items()
    ),
]
TWINS = {"rqlite": ("sync", "async"), "libsql": ("sync",)}
"""The blocking twin of libSQL sends its requests through the asyncio twin, so one of them is enough."""

MARKS = {"rqlite": (), "libsql": (pytest.mark.xdist_group("libsql-faults"),)}
"""One sqld serves all of these tests."""


def faults(*kinds: Kind) -> pytest.MarkDecorator:
    """Run a test for every fault of these kinds, on both backends. Without kinds: for every fault."""
    cases = [
        pytest.param(fault, twin, marks=MARKS[fault.backend], id=f"{fault.backend}-{twin}-{fault.name}")
        for fault in FAULTS
        if not kinds or fault.kind in kinds
        for twin in TWINS[fault.backend]
    ]
    return pytest.mark.parametrize(("fault", "twin"), cases)


def servers() -> pytest.MarkDecorator:
    """Run a test on both backends. The test chooses its own faults; the fixture `fault` only names the backend."""
    cases = [
        pytest.param(
            Fault(backend, "certain", "", lambda server: None), twin, marks=MARKS[backend], id=f"{backend}-{twin}"
        )
        for backend, twins in TWINS.items()
        for twin in twins
    ]
    return pytest.mark.parametrize(("fault", "twin"), cases)


@contextmanager
def breakable(backend: str, sqld: Callable[[], Server]) -> Iterator[Breakable]:
    """A running server."""
    if backend == "rqlite":
        with rqlite.private(nodes=3, auth="worker:secret") as cluster:
            yield BreakableRqlite(cluster)
    else:
        server = sqld()
        with Relay(server.port) as between:
            yield BreakableLibsql(server, between)


@dataclass
class Behind:
    """A server behind a proxy that passes bytes on and knows no protocol.

    Attributes:
        url: the URL that leads through the proxy.
    """

    backend: str
    proxy: Proxy
    url: str
    kit: Kit


@contextmanager
def behind_a_proxy(backend: str, sqld: Callable[[], Server]) -> Iterator[Behind]:
    """A running server, and a proxy in front of it."""
    if backend == "rqlite":
        with rqlite.private(nodes=1, auth="worker:secret") as cluster:
            port = int(cluster.url.rpartition(":")[2])
            with Proxy(port) as proxy:
                url = cluster.url.replace(f":{port}", f":{proxy.port}")
                yield Behind(backend, proxy, url, OwnRqliteKit(cluster.url))
    else:
        server = sqld()
        kit = LibsqlKit()
        kit.server_url = server.url
        with Proxy(server.port) as proxy:
            yield Behind(backend, proxy, f"libsql+http://127.0.0.1:{proxy.port}", kit)


def backends(*twins: str) -> pytest.MarkDecorator:
    """Run a test on both backends, for these twins. Without arguments: for both twins."""
    cases = [
        pytest.param(backend, twin, marks=MARKS[backend], id=f"{backend}-{twin}")
        for backend in TWINS
        for twin in twins or ("sync", "async")
    ]
    return pytest.mark.parametrize(("backend", "twin"), cases)
