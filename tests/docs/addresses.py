"""The addresses that documents show, and the test server for each."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Shown:
    """How documents write the address of a server.

    Attributes:
        server: its name in `tests.servers`.
        schemes: of the URLs it is part of.
        hosts: the names that it may have.
        port: the port that documents write, or leave out.
    """

    server: str
    schemes: tuple[str, ...]
    hosts: tuple[str, ...]
    port: int

    def pattern(self) -> re.Pattern[str]:
        host = "|".join(map(re.escape, self.hosts))
        return re.compile(
            rf"(?P<before>\b(?:{'|'.join(map(re.escape, self.schemes))})://(?:[^@/\s'\"]*@)?)"
            rf"(?P<host>(?:{host})(?::{self.port})?)(?![\w.:,-])"
        )


SHOWN: Mapping[str, Shown] = {
    "postgres": Shown("postgres", ("postgresql", "postgres"), ("db", "localhost"), 5432),
    "redis": Shown("redis", ("redis",), ("cache", "localhost"), 6379),
    "mongo": Shown("mongoeco", ("mongodb",), ("db", "localhost"), 27017),
    "libsql": Shown("sqld", ("libsql+http", "http"), ("localhost",), 8080),
    "rqlite": Shown("rqlite", ("rqlite", "http"), ("localhost",), 4001),
    "sqs": Shown("elasticmq", ("http",), ("localhost",), 9324),
}
"""The servers by the name that a page gives after `needs:`."""


class Addresses:
    """Puts the real addresses into the code of a page, and the shown addresses into its output."""

    def __init__(self, real: Mapping[str, str]) -> None:
        self._real = {SHOWN[name].pattern(): address for name, address in real.items()}
        self._shown: dict[str, str] = {}

    def real(self, text: str) -> str:
        for pattern, address in self._real.items():

            def replaced(found: re.Match[str], address: str = address) -> str:
                self._shown[address] = found["host"]
                return found["before"] + address

            text = pattern.sub(replaced, text)
        return text

    def shown(self, text: str) -> str:
        for address, host in self._shown.items():
            text = text.replace(address, host)
        return text
