"""Call the functions of a queue directly, without the transports. A test may set the queue's clock."""

from __future__ import annotations

import secrets
from typing import Any

import redis

from fairlane.backends.redis.wire import keys_of, library_of
from fairlane.contract import CLIENT_REVISION
from fairlane.templates import render
from tests.backends.redis.servers import Client, primaries

SECOND = 1_000_000
CLOCK = "redis.call('TIME')"
NOON = 1_800_000_000 * SECOND


class LeaseLost(Exception):
    """The reply began with the code LEASELOST."""


class BadArguments(Exception):
    """The reply began with the code BADARGUMENTS."""


class Library:
    """A loaded library, and the keys of its queue."""

    def __init__(
        self, client: Client, *, queue: str | None = None, own_clock: bool = False, head_start: str = "1"
    ) -> None:
        self.client = client
        self.queue = queue or f"t{secrets.token_hex(6)}"
        self.keys = keys_of(self.queue)
        self.names = [key.partition(":")[2] for key in self.keys]
        self._clock = f"{{{self.queue}}}:clock"
        code = render("lua/library.lua.j2", queue=self.queue, revision=CLIENT_REVISION)
        if own_clock:
            assert code.count(CLOCK) == 1
            code = code.replace(CLOCK, f"redis.call('HMGET', '{self._clock}', 's', 'us')")
            self.set_time(NOON)
        self._everywhere("FUNCTION", "LOAD", "REPLACE", code)
        client.hset(
            self.key("meta"), mapping={"revision": CLIENT_REVISION, "serves": CLIENT_REVISION, "head_start": head_start}
        )

    @classmethod
    def of_migrated(cls, client: Client, queue: str) -> Library:
        """Return the library of a queue that a migration has made."""
        made = cls.__new__(cls)
        made.__dict__.update(client=client, queue=queue, keys=keys_of(queue))
        made.names = [key.partition(":")[2] for key in made.keys]
        return made

    def _everywhere(self, *command: Any) -> None:
        for node in primaries(self.client):
            node.execute_command(*command)

    def remove(self) -> None:
        self._everywhere("FUNCTION", "DELETE", library_of(self.queue))
        self.client.delete(*self.keys, self._clock)

    def key(self, name: str) -> str:
        return self.keys[self.names.index(name)]

    def set_time(self, micros: int) -> None:
        self.time = micros
        self.client.hset(self._clock, mapping={"s": micros // SECOND, "us": micros % SECOND})

    def pass_time(self, micros: int) -> None:
        self.set_time(self.time + micros)

    def call(self, function: str, *argv: Any, keys: list[str] | None = None, command: str = "FCALL") -> Any:
        chosen = self.keys if keys is None else keys
        try:
            return self.client.execute_command(command, f"{self.queue}_{function}", len(chosen), *chosen, *argv)
        except redis.exceptions.ResponseError as error:
            code = str(error).partition(" ")[0]
            known = {"LEASELOST": LeaseLost, "BADARGUMENTS": BadArguments}.get(code)
            if known is None:
                raise
            raise known(str(error)) from error

    # Shorter forms of `call`, with the arguments in an order that is convenient in tests.

    def publish(self, group: Any, event: Any = "1", priority: int = 0, dedup: str = "") -> int:
        return int(self.call("publish", group, event, priority, dedup))

    def claim(self, token: str = "t", visibility: int = 60 * SECOND, floor: int = 0, worker: str = "w") -> Any:
        """Returns group_id, seq, event, token, attempts, published_at, expires_at; None if there is nothing."""
        return leased(self.call("claim", worker, visibility, floor, token))

    def order(self, floor: int = 0) -> list[bytes]:
        """Claim until nothing is claimable, and return the groups in that order. They stay leased."""
        found = []
        while reply := self.claim(secrets.token_hex(8), floor=floor):
            found.append(reply[0])
        return found

    def leftovers(self) -> list[str]:
        return [name for name, key in zip(self.names, self.keys, strict=True) if self.client.exists(key)]


def leased(reply: Any) -> Any:
    """Return the reply to a claim as one flat tuple."""
    if reply is None:
        return None
    group, event, facts = reply
    seq, token, attempts, published_at, expires_at = facts.split(b" ")
    return (group, int(seq), event, token, int(attempts), int(published_at), int(expires_at))
