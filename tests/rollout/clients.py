"""The processes of publishers and workers of both versions."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from tests.rollout.release import ROOT, Release
from tests.torture.history import Call

ROLES = [("publisher", "sync"), ("publisher", "async"), ("worker", "sync"), ("worker", "async")]
CALLS = 15
"""Calls that each client makes in each part of a rollout, at least."""

PATIENCE = 90.0
"""Seconds in which they must have made them, on a machine that is busy with other tests."""


class Clients:
    """The clients of one version, with journals in a folder."""

    def __init__(self, name: str, release: Release, url: str, queue: str, folder: Path) -> None:
        self._folder = folder
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        for role, twin in ROLES:
            client = f"{name}-{role}-{twin}"
            command = [sys.executable, "-m", "tests.rollout.client", role, twin, url, queue, f"{folder / client}.log"]
            with (folder / f"{client}.err").open("wb") as errors:
                self._running[client] = subprocess.Popen(
                    command, cwd=ROOT, env=release.environment(), stdout=errors, stderr=errors
                )

    def counts(self) -> dict[str, int]:
        """Return the number of lines in each journal."""
        paths = {client: self._folder / f"{client}.log" for client in self._running}
        return {client: path.read_bytes().count(b"\n") if path.exists() else 0 for client, path in paths.items()}

    def ended(self) -> list[str]:
        """Return the clients that do not run any more."""
        return [client for client, process in self._running.items() if process.poll() is not None]

    def end(self, role: str = "") -> list[str]:
        """Let all clients, or those of a role, finish what they do. Return what is wrong with the way they ended."""
        chosen = {client: process for client, process in self._running.items() if role in client}
        for process in chosen.values():
            process.send_signal(signal.SIGTERM)
        return [line for client, process in chosen.items() for line in self._ended(client, process)]

    def _ended(self, client: str, process: subprocess.Popen[bytes]) -> list[str]:
        del self._running[client]
        try:
            code = process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            return [f"{client} did not end within {PATIENCE:.0f} s"]
        printed = (self._folder / f"{client}.err").read_text(errors="replace").strip()
        return [f"{client} ended with {code}: {printed[-600:]}"] if printed or code else []

    def kill(self) -> None:
        """Kill what still runs."""
        for process in self._running.values():
            process.kill()
            process.wait()


def work(seconds: float, *clients: Clients) -> None:
    """Let clients work for some time, and until each has made some calls."""
    began = time.monotonic()
    before = [each.counts() for each in clients]
    while True:
        time.sleep(0.02)
        now = [each.counts() for each in clients]
        idle = {
            client
            for each, earlier in zip(now, before, strict=True)
            for client, count in each.items()
            if count < earlier.get(client, 0) + 2 * CALLS
        }
        if not idle and time.monotonic() > began + seconds:
            return
        assert not (ended := [client for each in clients for client in each.ended()]), f"{ended} have ended"
        assert time.monotonic() < began + PATIENCE, f"no work was done by {sorted(idle)}"


def errors(calls: list[Call]) -> dict[str, list[str]]:
    """Return the errors of each client."""
    found: dict[str, list[str]] = {}
    for call in calls:
        if call.outcome not in ("ok", "cancelled"):
            found.setdefault(call.who, []).append(f"{call.operation}: {call.outcome}: {call.result}")
    return found


def shares(calls: list[Call]) -> Counter[str]:
    """Return how many leases the workers of each version got."""
    claims = [call for call in calls if call.operation == "claim" and call.ok and call.result is not None]
    return Counter(call.who.partition("-")[0] for call in claims)
