"""Migrations of Redis: the function library on every primary, and the revision in the queue's `meta` key.

A library is global to a server, the keys belong to one of its databases: queues of one name in several databases share
the library, which goes when the last of them does.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import redis

from fairlane.backends.base import translated
from fairlane.backends.redis.address import make_client, make_cluster, parse
from fairlane.backends.redis.errors import BACKEND_NAME, Refused, code_of, translate
from fairlane.backends.redis.wire import check_policy, keys_of, library_of
from fairlane.backends.targets import Choices, LedgerTarget
from fairlane.contract import DEFAULT_HEAD_START
from fairlane.errors import BackendUnavailable, ConfigurationError

LOCK_SECONDS = 60
_UNLOCK = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0"


class RedisTarget(LedgerTarget):
    """A queue in Redis as the migrations' ledger sees it."""

    def __init__(self, url: str, choices: Choices) -> None:
        self._address = parse(url)
        self._head_start = choices.head_start
        self._library = library_of(choices.queue)
        self._keys = keys_of(choices.queue)
        self._meta = self._keys[0]
        self._made: Any = None

    @property
    def _client(self) -> Any:
        """The client for the queue's keys; in a cluster it finds their node."""
        if self._made is None:
            self._made = (make_cluster if self._address.cluster else make_client)(self._address)
        return self._made

    def _primaries(self) -> list[Any]:
        if not self._address.cluster:
            return [self._client]
        return [self._client.get_redis_connection(node) for node in self._client.get_primaries()]

    def _translated(self) -> Any:
        return translated(self._translate)

    def _translate(self, error: Exception) -> Exception | None:
        known = translate(error, self._address.shown, self._address.timeout)
        return known.error if isinstance(known, Refused) else known

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Let one migration of this queue run at a time; wait for another one, for a bounded time."""
        key, token = f"{self._meta}:lock", uuid4().hex
        deadline = time.monotonic() + LOCK_SECONDS
        with self._translated():
            while not self._client.set(key, token, nx=True, ex=LOCK_SECONDS):
                if time.monotonic() > deadline:
                    raise BackendUnavailable(BACKEND_NAME, self._address.shown, "another migration of it holds it up")
                time.sleep(0.05)
        try:
            yield
        finally:
            with self._translated():
                self._client.eval(_UNLOCK, 1, key, token)

    def read(self) -> str | None:
        """Return the current revision; None when the queue is not there, or a primary lacks its functions.

        So an upgrade repairs a server that lost its functions, or a primary that joined the cluster without them.
        """
        with self._translated():
            found = self._client.hget(self._meta, "revision")
            if found is None or not all(self._has_library(primary) for primary in self._primaries()):
                return None
        return _text(found)

    def _has_library(self, primary: Any) -> bool:
        try:
            return bool(primary.execute_command("FUNCTION", "LIST", "LIBRARYNAME", self._library))
        except redis.exceptions.ResponseError as error:
            if code_of(error) != "ERR":
                raise
            return False  # a server without functions; loading them will say so

    def apply(self, scripts: Sequence[str], revision: str | None, *, serves: str | None, stamp: bool) -> None:
        """Bring the queue to a revision: its functions first, then, if all servers took them, the revision.

        Functions cannot be part of a transaction: a `FUNCTION LOAD` that fails within one does not stop the rest.
        """
        with self._translated():
            if revision is None:
                self._forget() if stamp else self._remove()
                return
            if not stamp:
                self._check_servers()
                for script in scripts:
                    self._load(script)
            assert serves is not None
            self._client.hset(self._meta, mapping={"revision": revision, "serves": serves})
            if self._head_start is None:
                self._client.hsetnx(self._meta, "head_start", DEFAULT_HEAD_START)
            else:
                self._client.hset(self._meta, "head_start", self._head_start)

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
                    f"redis at {self._address.shown} (version {version}) does not take the functions of the queue; "
                    f"Redis 7 or Valkey is needed: {error}"
                ) from error

    def _forget(self) -> None:
        self._client.hdel(self._meta, "revision", "serves")

    def _remove(self) -> None:
        """Remove the functions, so that nobody publishes any more, and then every key of the queue."""
        if not self._used_elsewhere():
            for primary in self._primaries():
                if self._has_library(primary):
                    primary.execute_command("FUNCTION", "DELETE", self._library)
        self._client.unlink(*self._keys)

    def _used_elsewhere(self) -> bool:
        """Tell whether another database of the server has a queue of the same name."""
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
        """Return a shell script that calls `redis-cli`, or what $REDIS_CLI says instead, with options and all."""
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
        for script in scripts:
            begin += ["# in a cluster: on every primary", load, script.rstrip("\n"), "END-OF-LIBRARY"]
        choice = "HSETNX" if self._head_start is None else "HSET"
        return _lines(
            *begin,
            f"$REDIS_CLI -e -c HSET {meta} revision {revision} serves {serves}",
            f"$REDIS_CLI -e -c {choice} {meta} head_start {self._head_start or DEFAULT_HEAD_START}",
        )

    def close(self) -> None:
        """Release the connections."""
        if self._made is not None:
            self._made.close()


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _lines(*lines: str) -> str:
    return "\n".join(lines) + "\n"


def _quoted(key: str) -> str:
    return f"'{key}'"
