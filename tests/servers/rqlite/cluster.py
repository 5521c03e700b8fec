"""Start nodes, reach them, break them."""

from __future__ import annotations

import contextlib
import random
import ssl
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

from .bodies import Statement
from .database import Database, Quirks
from .faults import Faults
from .listener import Listener
from .messages import Answer, Call, Request, text
from .raft import Node, Raft
from .service import Credentials, Service

HOST = "127.0.0.1"
# Not the ports that Linux gives to outgoing connections: a client that connects to a stopped node might get the node's
# port
PORTS = range(12_000, 32_000)


@dataclass(frozen=True)
class Seen:
    """One request that a node has accepted, with statements as rqlite would log them."""

    node: int
    method: str
    path: str
    params: dict[str, str]
    statements: tuple[Statement, ...]


@dataclass(frozen=True)
class Settings:
    nodes: int = 1
    ports: tuple[int, ...] = ()  # free ones by default
    data: Path | None = None  # a folder for the database files; memory by default
    credentials: tuple[Credentials, ...] = ()
    tls: tuple[Path, Path] | None = None  # certificate and key
    heartbeat: float = 0.1
    election: float = 0.2
    quirks: Quirks = field(default_factory=Quirks)


class Cluster:
    """A running stand-in. See `faults` for faults of single requests."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.faults = Faults()
        self._seen: deque[Seen] = deque(maxlen=100_000)
        self._tls = None
        if settings.tls:
            self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self._tls.load_cert_chain(*settings.tls)
        databases = _databases(settings)
        self._raft = Raft(databases, heartbeat=settings.heartbeat, election=settings.election)
        self._services = [Service(self._raft, node, settings.credentials) for node in self._raft.nodes]
        ports = settings.ports or (0,) * settings.nodes
        self._listeners: list[Listener | None] = [self._listen(node, ports[node.index]) for node in self._raft.nodes]
        self._stopped: dict[int, Listener] = {}
        self._ports = [listener.port for listener in self._listeners if listener]
        for node, port in zip(self._raft.nodes, self._ports, strict=True):
            node.api_address = f"{'https' if self._tls else 'http'}://{HOST}:{port}"

    @property
    def urls(self) -> list[str]:
        """Return the nodes' HTTP addresses, without credentials."""
        return [node.api_address for node in self._raft.nodes]

    @property
    def url(self) -> str:
        """Return one URL of all nodes for Fairlane, with the first user's credentials."""
        login = ""
        if self.settings.credentials:
            first = self.settings.credentials[0]
            login = f"{quote(first.username, safe='')}:{quote(first.password, safe='')}@"
        hosts = ",".join(f"{HOST}:{port}" for port in self._ports)
        return f"{'rqlites' if self._tls else 'rqlite'}://{login}{hosts}"

    @property
    def leader(self) -> int | None:
        """Return the index of the leader, or of the node that the others still take for the leader."""
        leader = self._raft.leader()
        return None if leader is None else leader.index

    @property
    def seen(self) -> list[Seen]:
        """Return the requests so far, oldest first. Tests count round trips with it."""
        return list(self._seen)

    def forget_seen(self) -> None:
        self._seen.clear()

    def stop_node(self, index: int) -> None:
        """Let the node's process die: its port refuses connections, and open connections break."""
        listener, self._listeners[index] = self._listeners[index], None
        if listener:
            self._raft.stop(self._raft.nodes[index])
            listener.stop()
            self._stopped[index] = listener

    def start_node(self, index: int) -> None:
        """Start the node again on its old port; it applies the missing entries of the log."""
        if self._listeners[index] is None:
            self._stopped.pop(index).release()
            self._listeners[index] = self._listen(self._raft.nodes[index], self._ports[index])
            self._raft.start(self._raft.nodes[index])

    def freeze_node(self, index: int) -> None:
        """Cut the follower off from the leader, but not from clients: reads with level=none are stale there."""
        self._raft.freeze(self._raft.nodes[index])

    def thaw_node(self, index: int) -> None:
        self._raft.thaw(self._raft.nodes[index])

    def change_leader(self, to: int | None = None) -> int:
        """Make another node the leader, by default the next running one. Return its index."""
        return self._raft.change_leader(to).index

    def lose_leader(self, seconds: float | None = None) -> None:
        """Leave the cluster without a leader for these seconds, or until `change_leader`."""
        self._raft.lose_leader(seconds)

    def close(self) -> None:
        for listener in self._listeners:
            if listener:
                listener.stop()
                listener.release()
        for stopped in self._stopped.values():
            stopped.release()
        self._raft.close()

    def _listen(self, node: Node, port: int) -> Listener:
        def respond(request: Request) -> Answer | None:
            return self._respond(node, request)

        if port:
            return Listener((HOST, port), respond, self._tls)
        for candidate in random.SystemRandom().sample(PORTS, 20):
            with contextlib.suppress(OSError):
                return Listener((HOST, candidate), respond, self._tls)
        raise OSError(f"no free port found on {HOST} between {PORTS.start} and {PORTS.stop}")

    def _respond(self, node: Node, request: Request) -> Answer | None:
        call = self._services[node.index].admit(request)
        if isinstance(call, Answer):
            return call
        self._seen.append(Seen(node.index, request.method, request.path, call.params, call.statements))
        call.switch = self.faults.take(call.endpoint, call.sql, node.index)
        return self._answer(self._services[node.index], call)

    def _answer(self, service: Service, call: Call) -> Answer | None:
        switch = call.switch
        if switch is None:
            return service.handle(call)
        if switch.action == "refuse":
            return None
        if switch.action == "reply":
            return text(switch.status, switch.text)
        if switch.action == "slow":
            time.sleep(switch.seconds)
        answer = service.handle(call)
        if switch.action == "slow_answer":
            time.sleep(switch.seconds)
        return None if switch.action == "drop_answer" else answer


@contextlib.contextmanager
def private(
    nodes: int = 1,
    *,
    auth: str | Sequence[Credentials] | None = None,
    tls: tuple[Path, Path] | None = None,
    data: Path | None = None,
    quirks: Quirks | None = None,
    heartbeat: float = 0.1,
    election: float = 0.2,
) -> Iterator[Cluster]:
    """Return a cluster in this process, for one test.

    Args:
        auth: `user:password` with every permission, or a list of credentials.
        heartbeat: seconds until the others notice that the leader is gone.
        election: seconds from then until there is a new one.
    """
    cluster = Cluster(
        Settings(
            nodes=nodes,
            data=data,
            credentials=credentials(auth),
            tls=tls,
            heartbeat=heartbeat,
            election=election,
            quirks=quirks or Quirks(),
        )
    )
    try:
        yield cluster
    finally:
        cluster.close()


def credentials(auth: str | Sequence[Credentials] | None) -> tuple[Credentials, ...]:
    if isinstance(auth, str):
        username, _, password = auth.partition(":")
        return (Credentials(username, password),)
    return tuple(auth or ())


def _databases(settings: Settings) -> list[Database]:
    """Return one database per node. If they are files, the one that was written last is copied, since the leader is
    always ahead of the others."""
    if settings.data is None:
        return [Database(None, settings.quirks) for _ in range(settings.nodes)]
    settings.data.mkdir(parents=True, exist_ok=True)
    paths = [settings.data / f"node-{index + 1}.sqlite" for index in range(settings.nodes)]
    ages = [_written(path) for path in paths]
    databases = [Database(path, settings.quirks) for path in paths]
    newest = databases[ages.index(max(ages))]
    for database in databases:
        if database is not newest:
            newest.copy_to(database)
    return databases


def _written(path: Path) -> int:
    files = [each for each in (path, path.with_name(f"{path.name}-wal")) if each.exists()]
    return max((each.stat().st_mtime_ns for each in files), default=0)
