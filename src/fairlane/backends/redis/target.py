"""Migrations of Redis. They load the function library on every primary, and write the revision into the `meta` key.

A library is global to a server, but keys belong to one of its databases. So queues with the same name in several
databases share the library. It is removed together with the last of these queues.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import uuid4

import redis
from redis.client import NEVER_DECODE

from fairlane.backends.base import translated
from fairlane.backends.redis.address import make_client, make_cluster, parse
from fairlane.backends.redis.errors import BACKEND_NAME, Refused, code_of, translate
from fairlane.backends.redis.wire import check_policy, keys_of, library_of
from fairlane.backends.shared.lock_target import LOCK_SECONDS, LockTarget
from fairlane.backends.targets import STORED, Choices, shown
from fairlane.contract import DEFAULT_HEAD_START, MAX_LIMIT
from fairlane.errors import ConfigurationError
from fairlane.templates import render

_LIBRARY_TEMPLATE = "lua/library.lua.j2"

PAGE = 1000
"""The number of messages that one call checks while a queue is repaired. It takes a few milliseconds of the server."""

_log = logging.getLogger("fairlane.migrate")
_IF_HELD = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call({}) end return 0"
_UNLOCK = _IF_HELD.format("'DEL', KEYS[1]")
_RENEW = _IF_HELD.format("'EXPIRE', KEYS[1], ARGV[2]")


class RedisTarget(LockTarget):
    """A queue of Redis as the target of migrations."""

    def __init__(self, url: str, choices: Choices) -> None:
        self._address = parse(url)
        self._head_start = choices.head_start
        self._library = library_of(choices.queue)
        self._keys = keys_of(choices.queue)
        self._meta = self._keys[0]
        self._lock = f"{self._meta}:lock"
        self._token = uuid4().hex
        super().__init__(choices.queue, BACKEND_NAME, self._address.shown, f"the key {self._lock}")
        self._repaired = False
        self._made: Any = None

    @property
    def _client(self) -> Any:
        """The client for the queue's keys. In a cluster it finds their node."""
        if self._made is None:
            self._made = (make_cluster if self._address.cluster else make_client)(self._address)
        return self._made

    def _primaries(self) -> list[Any]:
        if not self._address.cluster:
            return [self._client]
        return [self._client.get_redis_connection(node) for node in self._client.get_primaries()]

    def _translated(self) -> translated:
        return translated(self._translate)

    def _translate(self, error: Exception) -> Exception | None:
        known = translate(error, self._address.shown, self._queue)
        return known.error if isinstance(known, Refused) else known

    def take_lock(self) -> bool:
        """Set the key, unless it exists."""
        with self._translated():
            return bool(self._client.set(self._lock, self._token, nx=True, ex=LOCK_SECONDS))

    def renew_lock(self) -> bool:
        """Let the key expire later."""
        return bool(self._client.eval(_RENEW, 1, self._lock, self._token, LOCK_SECONDS))

    def free_lock(self) -> None:
        """Delete the key."""
        with self._translated():
            self._client.eval(_UNLOCK, 1, self._lock, self._token)

    def read(self) -> str | None:
        """Return the current revision, or None if the queue is not there or a primary lacks its functions.

        So an upgrade repairs a server that has lost its functions, and a primary that joined the cluster without them.
        """
        with self._translated():
            found = self._client.hget(self._meta, "revision")
            if found is None or not all(self._has_library(primary) for primary in self._primaries()):
                return None
        return _text(found)

    def _has_library(self, primary: Any, script: str | None = None) -> bool:
        """Return whether the server has the functions, and has loaded them from this script if one is given."""
        try:
            found = primary.execute_command("FUNCTION", "LIST", "LIBRARYNAME", self._library, "WITHCODE")
            return bool(found) and (script is None or script.encode() in found[0])
        except redis.exceptions.ResponseError as error:
            if code_of(error) != "ERR":
                raise
            return False  # a server that does not support functions; loading them raises an error

    def apply(self, scripts: Sequence[str], revision: str | None, *, serves: str | None, stamp: bool) -> None:
        """Apply one step: load the functions first and, if all primaries have them, write the revision.

        A transaction does not help, since a `FUNCTION LOAD` that fails in it does not stop the other commands.
        """
        with self._translated():
            if revision is None:
                self._forget() if stamp else self._remove()
                return
            if not stamp:
                self._check_servers()
                for script in scripts:
                    self._load(script)
                    # before the revision is written, so that no client publishes with a used seq; on the way down the
                    # first library ends all pauses, which the second one does not know
                    self._rebuild()
            assert serves is not None
            self.keep_lock()
            self._client.hset(self._meta, mapping={"revision": revision, "serves": serves})
            if self._head_start is None:
                self._client.hsetnx(self._meta, "head_start", DEFAULT_HEAD_START)
            else:
                self._client.hset(self._meta, "head_start", self._head_start)

    def stored(self) -> dict[str, str | None] | None:
        """Return the settings that the queue stores, with its revision. None if the queue is not there."""
        with self._translated():
            values = self._client.hmget(
                self._meta, STORED
            )  # not HGETALL, for which users of older migrations lack rights
        found: dict[str, str | None] = {
            name: shown(value) for name, value in zip(STORED, values, strict=True) if value is not None
        }
        return found or None

    def configure(self, changes: Mapping[str, str], scripts: Sequence[str]) -> None:
        """Change settings of an existing queue. Functions read them in each call, so no function contains them."""
        with self._translated():
            self.keep_lock()
            self._client.hset(self._meta, mapping=dict(changes))

    def remains(self) -> bool:
        """Return whether a removal has left keys, or functions that no other database of the server needs."""
        with self._translated():
            if self._client.exists(*self._keys):
                return True
            return any(map(self._has_library, self._primaries())) and not self._used_elsewhere()

    def repair(self) -> None:
        """Restore the functions of the queue's revision, if a migration was killed between them and the revision.

        Then restore from the messages what was lost: the last seq, dedup ids, and each group's state and places.
        """
        with self._translated():
            revision = self.read()
            if self._repaired or revision is None:  # without the functions only an upgrade repairs it
                return
            script = render(_LIBRARY_TEMPLATE, as_of=revision, queue=self._queue, revision=revision)
            if not all(self._has_library(primary, script) for primary in self._primaries()):
                self._load(script)
            self._rebuild()

    def _rebuild(self) -> None:
        self._repaired = True
        after, greatest = b"", 0
        missing = 0
        while True:
            arguments = (f"{self._queue}_rebuild", len(self._keys), *self._keys, after, greatest, PAGE)
            last, greatest, more = self._client.execute_command("FCALL", *arguments, **{NEVER_DECODE: True})
            missing += more
            if last is None:
                break
            after = last
            self.keep_lock()
        if missing:
            _log.warning(
                "queue %s: %d groups, dedup ids or counters were incomplete and are repaired", self._queue, missing
            )

    def _check_servers(self) -> None:
        for primary in self._primaries():
            memory = primary.info("memory")
            check_policy(memory.get("maxmemory_policy"), allow_eviction=self._address.allow_eviction)

    def _load(self, script: str) -> None:
        for primary in self._primaries():
            try:
                primary.execute_command("FUNCTION", "LOAD", "REPLACE", script)
            except redis.exceptions.ResponseError as error:
                if code_of(error) != "ERR":
                    raise
                version = primary.info("server").get("redis_version", "?")
                raise ConfigurationError(
                    f"redis at {self._address.shown} (version {version}) refused the functions of the queue; "
                    f"Redis 7 or Valkey is needed: {error}"
                ) from error

    def _forget(self) -> None:
        self._client.hdel(self._meta, "revision", "serves")

    def _remove(self) -> None:
        """Remove the functions first, so that no client can publish, and then all keys of the queue."""
        if not self._used_elsewhere():
            for primary in self._primaries():
                if self._has_library(primary):
                    primary.execute_command("FUNCTION", "DELETE", self._library)
        self._unlink()

    def _unlink(self) -> None:
        self._client.unlink(*self._keys)

    def _used_elsewhere(self) -> bool:
        """Return whether another database of the server has a queue with the same name."""
        if self._address.cluster:
            return False
        here = self._client.connection_pool.connection_kwargs.get("db", 0)
        for name in self._client.info("keyspace"):
            number = int(name.removeprefix("db"))
            if number != here and self._exists_in(number):
                return True
        return False

    def _exists_in(self, database: int) -> bool:
        with make_client(self._address, database=database) as client:
            return bool(client.exists(self._meta))

    def offline(self, scripts: Sequence[str], revision: str | None, *, serves: str | None) -> str:
        """Return a shell script that calls `redis-cli`. The variable REDIS_CLI can replace it, also with options."""
        begin = ["set -e", ': "${REDIS_CLI:=redis-cli}"']
        meta = _quoted(self._meta)
        if revision is None:
            keys = " ".join(map(_quoted, self._keys))
            return _lines(
                *begin,
                "# in a cluster: on every primary",
                f"$REDIS_CLI -e FUNCTION DELETE {self._library}",
                f"$REDIS_CLI -e -c UNLINK {keys}",
            )
        load = "$REDIS_CLI -e -x FUNCTION LOAD REPLACE <<'END-OF-LIBRARY'"
        keys = " ".join(map(_quoted, self._keys))
        for number, script in enumerate(scripts):
            if number:  # on the way down the first library ends all pauses, as it does online
                begin.append(f"$REDIS_CLI -e -c FCALL {self._queue}_rebuild {len(self._keys)} {keys} '' 0 {MAX_LIMIT}")
            begin += ["# in a cluster: on every primary", load, script.rstrip("\n"), "END-OF-LIBRARY"]
        choice = "HSETNX" if self._head_start is None else "HSET"
        return _lines(
            *begin,
            f"$REDIS_CLI -e -c HSET {meta} revision {revision} serves {serves}",
            f"$REDIS_CLI -e -c {choice} {meta} head_start {self._head_start or DEFAULT_HEAD_START}",
        )

    def close(self) -> None:
        """Close the connections."""
        if self._made is not None:
            self._made.close()


def _text(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _lines(*lines: str) -> str:
    return "\n".join(lines) + "\n"


def _quoted(key: str) -> str:
    return f"'{key}'"
