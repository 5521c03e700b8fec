"""Serve mongoeco until told to stop:  mongoeco_main.py PORT FOLDER memory|sqlite

Runs in mongoeco's own virtual environment, with nothing of Fairlane.
"""

# mypy: disable-error-code="import-not-found"

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path
from typing import Any


async def serve(port: int, folder: Path, kind: str) -> None:
    from mongoeco.wire.proxy import AsyncMongoEcoProxyServer

    server = AsyncMongoEcoProxyServer(engine=engine(kind, folder), host="127.0.0.1", port=port)
    await server.start()
    print("mongoeco is ready", flush=True)
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    await ended.wait()


def engine(kind: str, folder: Path) -> Any:
    if kind == "memory":
        from mongoeco.engines.memory import MemoryEngine

        return MemoryEngine()
    from mongoeco.engines.sqlite import SQLiteEngine

    return SQLiteEngine(str(folder / "data.sqlite"))


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]))
