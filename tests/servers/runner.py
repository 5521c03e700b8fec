"""Run a command together with the servers that it needs."""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import FrameType

from tests.servers import DEFAULT, SERVERS, TOOLS
from tests.servers.install import say
from tests.servers.process import ServerError
from tests.servers.tools import install_tool

FORWARDED = (signal.SIGTERM, signal.SIGHUP)


def install(names: Sequence[str], *, tools: Sequence[str] = ()) -> None:
    """Fetch the missing programs of these servers, except those that a variable replaces."""
    wanted: list[Callable[[], object]] = [
        SERVERS[name].install for name in names if not os.environ.get(SERVERS[name].variable)
    ]
    wanted += [functools.partial(install_tool, name) for name in tools]
    at_once(wanted)


def run(names: Sequence[str], command: Sequence[str]) -> int:
    """Start the servers, run the command, stop what was started. Return the command's exit code."""
    with contextlib.ExitStack() as stack:
        with signals_as_exceptions():
            urls = start(names, stack)
        return call(command, urls)


def start(names: Sequence[str], stack: contextlib.ExitStack) -> dict[str, str]:
    """Start servers and return their URLs by variable. The stack stops the servers that were started here."""
    urls = {SERVERS[name].variable: os.environ.get(SERVERS[name].variable, "") for name in names}
    missing = [name for name in names if not urls[SERVERS[name].variable]]
    install(missing)
    if set(names) & set(DEFAULT):
        fetch_tools()
    servers = [SERVERS[name]() for name in missing]
    for server in servers:
        stack.callback(server.close)
    at_once([server.start for server in servers])
    for server in servers:
        urls[server.variable] = server.url
        say(f"{server.name} on 127.0.0.1:{server.port} (pid {', '.join(map(str, server.pids))})")
    return urls


def fetch_tools() -> None:
    """Fetch what some tests use besides servers. Without it they fail or are skipped, and the others still run."""
    for name in TOOLS:
        try:
            install_tool(name)
        except ServerError as error:
            say(f"{error}; the tests that use {name} will miss it")


def at_once(functions: Sequence[Callable[[], object]]) -> None:
    """Call the functions at the same time; the first error is raised when all have ended."""
    with ThreadPoolExecutor(max_workers=8) as pool:
        for called in [pool.submit(function) for function in functions]:
            called.result()


def call(command: Sequence[str], urls: Mapping[str, str]) -> int:
    """Run the command, and pass on to it the signals that this process gets. Return its exit code (128 + n if signal n
    ended it)."""
    try:
        child = subprocess.Popen(command, env={**os.environ, **urls})
    except OSError as error:
        raise ServerError(f"cannot run {command[0]}: {error.strerror}") from error

    def forward(number: int, _: FrameType | None) -> None:
        child.send_signal(number)

    # A terminal sends Ctrl-C to the command as well, and the command decides when it ends.
    previous = {signal.SIGINT: signal.signal(signal.SIGINT, lambda *_: None)}
    previous |= {number: signal.signal(number, forward) for number in FORWARDED}
    try:
        code = child.wait()
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
    return code if code >= 0 else 128 - code


@contextlib.contextmanager
def signals_as_exceptions() -> Iterator[None]:
    """While servers start, let a signal raise an exception, so that the servers are stopped."""

    def stop(number: int, _: FrameType | None) -> None:
        raise SystemExit(128 + number)

    previous = {number: signal.signal(number, stop) for number in FORWARDED}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
