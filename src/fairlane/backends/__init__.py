"""The backends: which there are, the URL schemes they answer to, and how to load one.

Each module in the table offers `BACKEND`, a `base.Backend`. Its driver is imported when it is loaded, not before.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module

from fairlane.backends.base import Backend
from fairlane.errors import ConfigurationError, MissingExtra


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the table of backends.

    `drivers` are the modules that the extra of the same name installs; none means that it is always there.
    """

    schemes: tuple[str, ...]
    module: str
    drivers: tuple[str, ...] = ()


ENTRIES: dict[str, Entry] = {
    "memory": Entry(("memory",), "fairlane.backends.memory.executor"),
    "sqlite": Entry(("sqlite",), "fairlane.backends.sqlite.executor"),
    "postgres": Entry(("postgresql", "postgres"), "fairlane.backends.postgres.executor", ("psycopg", "psycopg_pool")),
    "redis": Entry(
        ("redis", "rediss", "redis+cluster", "rediss+cluster"), "fairlane.backends.redis.executor", ("redis",)
    ),
    "mongo": Entry(("mongodb", "mongodb+srv"), "fairlane.backends.mongo.executor", ("pymongo",)),
    "libsql": Entry(
        ("libsql", "libsql+http", "libsql+https"), "fairlane.backends.libsql.executor", ("libsql_client", "aiohttp")
    ),
    "rqlite": Entry(("rqlite", "rqlites"), "fairlane.backends.rqlite.executor", ("requests", "httpx")),
    "sqs": Entry(("sqs",), "fairlane.backends.sqs.executor", ("boto3", "botocore", "aiobotocore")),
}


def name_for(scheme: str) -> str:
    """Return the name of the backend that answers to a URL scheme.

    Raises:
        ConfigurationError: no backend does.
    """
    for name, entry in ENTRIES.items():
        if scheme in entry.schemes:
            return name
    known = ", ".join(f"{scheme}://" for entry in ENTRIES.values() for scheme in entry.schemes)
    raise ConfigurationError(f"no backend answers to {scheme}://; known are {known}")


def load(name: str) -> Backend:
    """Return a backend, importing its driver.

    Raises:
        ConfigurationError: there is no backend of that name.
        MissingExtra: its driver is not installed.
    """
    if name not in ENTRIES:
        raise ConfigurationError(f"no backend is called {name!r}; known are {', '.join(ENTRIES)}")
    try:
        backend: Backend = import_module(ENTRIES[name].module).BACKEND
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] in ENTRIES[name].drivers:
            raise MissingExtra(name) from error
        raise
    return backend
