"""Try every order in which the steps of several clients can reach the server, also with expired leases and crashes.

The clients are the real programs. A generator cannot be copied, but with the same answers it makes the same requests
again. So a client is stored as its script and its answers so far. A state is the server and the clients. Each state is
visited once.

In each state the explorer also lets all clients stop. Then a fresh client must find and finish every published message,
in order, and leave nothing behind.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any
from unittest import mock

from fairlane.backends.mongo import core as mongo_core
from fairlane.backends.mongo import operating as mongo_operating
from fairlane.backends.mongo import publishing as mongo_publishing
from fairlane.backends.mongo.core import MongoCore
from fairlane.backends.mongo.publishing import PAUSED
from fairlane.backends.mongo.wire import GROUPS, MESSAGES
from fairlane.errors import LeaseLost
from fairlane.model import Lease
from fairlane.program import Program, Sleep
from tests.backends.mongo.fake import FakeServer
from tests.backends.mongo.watcher import Ghost, Path, Violation, delivered, told, watched

VISIBILITY = 10.0
Script = Callable[[MongoCore], Program[Any, Any, None]]


@dataclass(frozen=True)
class Note:
    """What a script reports to the explorer. It is not sent to the server."""

    what: str
    lease: Lease | None = None
    seq: int = 0


def publisher(*messages: tuple[str, str], dedup_id: str | None = None) -> Script:
    """Publish each (group, event) in turn. Each event is published only once, and its text begins with its group."""

    def script(core: MongoCore) -> Program[Any, Any, None]:
        for group, event in messages:
            seq = yield from core.publish(group, event, 0, dedup_id)
            yield Note("published", seq=seq)

    return script


def consumer(*acts: str) -> Script:
    """For each act: claim, and then ack, nack, extend or keep the lease."""

    def script(core: MongoCore) -> Program[Any, Any, None]:
        for act in acts:
            lease = yield from core.claim("w", VISIBILITY, 0, Lease)
            yield Note("claimed", lease)
            if lease is None or act == "keep":
                continue
            arguments = {"ack": (), "nack": (0.0,), "extend": (VISIBILITY,)}[act]
            try:
                yield from getattr(core, act)(lease, *arguments)
                if act == "ack":
                    yield Note("acked", lease)
            except LeaseLost:
                yield Note("lost", lease)

    return script


def operator(*acts: str) -> Script:
    """Pause or resume the group `g`, in this order."""

    def script(core: MongoCore) -> Program[Any, Any, None]:
        for act in acts:
            if act == "resume":
                yield Note("resumes")
            yield from getattr(core, act)("g")
            if act == "pause":
                yield Note("paused")

    return script


@dataclass(frozen=True)
class Client:
    """A script and its answers so far. `request` is the next request; None when the script has ended or crashed."""

    name: str
    script: Script
    answers: tuple[Any, ...] = ()
    request: Any = None
    key: int = 0  # a hash of the answers

    def told(self, answer: Any) -> Client:
        content = tuple(answer.items()) if isinstance(answer, dict) else repr(answer)
        return Client(self.name, self.script, (*self.answers, answer), None, hash((self.key, content)))


@dataclass
class State:
    server: FakeServer
    clients: tuple[Client, ...]
    ghost: Ghost
    expiries: int
    crashes: int
    path: Path = None

    def key(self) -> Any:
        clients = tuple(client.key if client.request is not None else None for client in self.clients)
        return self.server.key(), clients, self.ghost, self.expiries, self.crashes


@dataclass
class Explorer:
    """Visits all states, breadth first.

    Args:
        scripts: the clients, by name.
        before: pairs of events from one publisher: the first must be finished before the second is delivered.
        expiries: how often all leases expire together.
        crashes: how many of the clients may stop for ever.
        done: messages (group, event) that were published before the start.
        tamper: changes the requests of the clients, to show that a rule is needed.
        drawn: publishers that have drawn their seq before `done` was published.
    """

    scripts: dict[str, Script]
    before: tuple[tuple[str, str], ...] = ()
    expiries: int = 1
    crashes: int = 1
    done: tuple[tuple[str, str], ...] = ()
    drawn: tuple[str, ...] = ()
    tamper: Callable[[Any, Any], Any] = lambda request, last_answer: request
    most: int = 2_000_000
    core: MongoCore = field(default_factory=lambda: MongoCore("q"))
    _recovered: set[Any] = field(default_factory=set)
    _moves: dict[Any, tuple[Client, list[Note]]] = field(default_factory=dict)

    def run(self) -> int:
        """Return the number of states."""
        server = FakeServer()
        with Patched():
            ready = {name: self._advance(Client(name, script))[0] for name, script in self.scripts.items()}
            for name in self.drawn:
                ready[name] = self._advance(ready[name].told(server.execute(ready[name].request)))[0]
            for group, event in self.done:
                finish(self.core.publish(group, event, 0, event), server)
            known = tuple((seq, message["event"]) for seq, message in server.data[MESSAGES].items())
            ghost = Ghost(inserted=known, published=frozenset(event for _, event in self.done))
            start = State(server, tuple(ready.values()), ghost, self.expiries, self.crashes)
            seen, level = {start.key()}, [start]
            while level:
                following: list[State] = []
                for state in level:
                    self._check_recovery(state)
                    for after in self._successors(state):
                        key = after.key()
                        if key not in seen:
                            seen.add(key)
                            following.append(after)
                assert len(seen) < self.most, f"{len(seen)} states and more to come"
                level = following
        return len(seen)

    def _successors(self, state: State) -> Iterator[State]:
        busy = False
        for index, client in enumerate(state.clients):
            if client.request is None:
                continue
            busy = True
            yield self._step(state, index)
            if state.crashes and client.answers:
                gone = (*state.clients[:index], replace(client, request=None), *state.clients[index + 1 :])
                path = (state.path, f"{client.name} crashes")
                yield replace(state, clients=gone, crashes=state.crashes - 1, path=path)
        if busy and state.expiries and state.server.data[GROUPS]:
            server = state.server.copy()
            server.pass_time(VISIBILITY)
            path = (state.path, "leases run out")
            yield replace(state, server=server, expiries=state.expiries - 1, path=path)

    def _step(self, state: State, index: int) -> State:
        """Let the server carry out one client's request, and advance this client to its next request."""
        client, server = state.clients[index], state.server.copy()
        request = self.tamper(client.request, client.answers[-1] if client.answers else None)
        answer = server.execute(request)
        path = (state.path, (client.name, request, answer))
        ghost = watched(state.ghost, client.name, request, answer)
        client, notes = self._advance(client.told(answer))
        for note in notes:
            ghost = self._noted(ghost, client.name, note, server, path)
        clients = (*state.clients[:index], client, *state.clients[index + 1 :])
        return State(server, clients, ghost, state.expiries, state.crashes, path)

    def _advance(self, client: Client) -> tuple[Client, list[Note]]:
        """Return the client with its next request, and the notes that come before this request."""
        moved = self._moves.get((client.name, client.key))
        if moved is None:
            moved = self._moves[client.name, client.key] = self._replay(client)
        return moved

    def _replay(self, client: Client) -> tuple[Client, list[Note]]:
        """Run the script from the start with all answers so far."""
        Tokens.reset(client.name)
        program = client.script(self.core)
        notes: list[Note] = []
        answers = iter(client.answers)
        try:
            request = next(program)
            while True:
                if isinstance(request, Note):
                    notes.append(request)
                    request = program.send(None)
                elif isinstance(request, Sleep):
                    request = program.send(None)
                else:
                    try:
                        answer = next(answers)
                    except StopIteration:
                        return Client(client.name, client.script, client.answers, request, client.key), notes
                    notes = []
                    request = program.send(answer)
        except StopIteration:
            return replace(client, request=None), notes

    def _noted(self, ghost: Ghost, name: str, note: Note, server: FakeServer, path: Path) -> Ghost:
        if note.what == "published":
            return replace(ghost, published=ghost.published | {dict(ghost.inserted)[note.seq]})
        if note.what == "acked" and note.lease is not None:
            return replace(ghost, acked=ghost.acked | {note.lease.event})
        if note.what in ("paused", "resumes"):
            return replace(ghost, paused=note.what == "paused")
        if note.what == "claimed" and note.lease is not None:
            return delivered(ghost, name, note.lease, server, path, self.before)
        return ghost

    def _check_recovery(self, state: State) -> None:
        """Stop all clients, and let one fresh client finish the remaining messages."""
        known = (state.server.key(), state.ghost)
        if known in self._recovered:
            return
        self._recovered.add(known)
        for event in state.ghost.published - state.ghost.acked:
            if event[0] not in state.server.data[GROUPS]:
                raise Violation(told(state.path, f"{event} was published, but its group is not in line"))
        server, ghost = state.server.copy(), state.ghost
        path = (state.path, "everybody is gone")
        if ghost.paused and server.data[GROUPS].get("g", {}).get("priority") not in PAUSED:
            raise Violation(told(path, "g was paused, and nobody has resumed it"))
        finish(self.core.resume("g"), server)
        server.pass_time(VISIBILITY)
        for number in itertools.count():
            Tokens.reset(f"recovery {number}")
            lease = finish(self.core.claim("w", VISIBILITY, 0, Lease), server)
            if lease is None:
                break
            now_acked = dict(ghost.acked_before) | {"recovery": ghost.acked}
            ghost = replace(ghost, acked_before=tuple(now_acked.items()))
            ghost = delivered(ghost, "recovery", lease, server, path, self.before)
            finish(self.core.ack(lease), server)
            ghost = replace(ghost, acked=ghost.acked | {lease.event}, held=())
            server.pass_time(0.001)
        lost = ghost.published - ghost.acked
        left = {name: documents for name, documents in server.data.items() if name != "meta" and documents}
        if lost or left:
            raise Violation(told(path, f"lost: {lost}, left behind: {left}"))


def finish(program: Program[Any, Any, Any], server: FakeServer) -> Any:
    """Run a program to its end without steps of other clients."""
    try:
        request = next(program)
        while True:
            request = program.send(None if isinstance(request, Sleep) else server.execute(request))
    except StopIteration as stop:
        return stop.value


class Tokens:
    """Replaces uuid4, so that a script gets the same tokens when it runs again."""

    name = ""
    number = 0

    @classmethod
    def reset(cls, name: str) -> None:
        cls.name, cls.number = name, 0

    @property
    def hex(self) -> str:
        Tokens.number += 1
        return f"{Tokens.name}/{Tokens.number}"


def no_wait(since: float) -> Program[Any, Any, None]:
    """Replaces `after_tick`, since a second run of a script must not depend on the clock."""
    yield from ()


class Patched:
    def __init__(self) -> None:
        self._patches: list[Any] = [
            mock.patch.object(mongo_core, "uuid4", Tokens),
            mock.patch.object(mongo_core, "after_tick", no_wait),
            mock.patch.object(mongo_publishing, "after_tick", no_wait),
            mock.patch.object(mongo_operating, "after_tick", no_wait),
        ]

    def __enter__(self) -> None:
        for patch in self._patches:
            patch.start()

    def __exit__(self, *error: object) -> None:
        for patch in self._patches:
            patch.stop()
