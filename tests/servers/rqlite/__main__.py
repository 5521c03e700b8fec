"""Run the stand-in as a separate process. One JSON line on standard output tells its addresses."""

from __future__ import annotations

import argparse
import json
import signal
import threading
from pathlib import Path

from .cluster import Cluster, Settings, credentials
from .control import open_door


def main() -> None:
    arguments = parse_arguments()
    tls = (arguments.cert, arguments.key) if arguments.cert and arguments.key else None
    cluster = Cluster(
        Settings(
            nodes=arguments.nodes,
            ports=tuple(range(arguments.port, arguments.port + arguments.nodes)) if arguments.port else (),
            data=arguments.data,
            credentials=credentials(arguments.auth),
            tls=tls,
            heartbeat=arguments.heartbeat,
            election=arguments.election,
        )
    )
    door = open_door(cluster, arguments.control_port)
    asked_to_stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: asked_to_stop.set())
    where = {"url": cluster.url, "urls": cluster.urls, "control": f"http://127.0.0.1:{door.port}/"}
    print(json.dumps(where), flush=True)
    asked_to_stop.wait()
    door.stop()
    cluster.close()


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.servers.rqlite", description=__doc__)
    parser.add_argument("--nodes", type=int, default=1, choices=(1, 3, 5))
    parser.add_argument("--port", type=int, default=0, help="of the first node, the others follow; default: free ones")
    parser.add_argument("--control-port", type=int, default=0)
    parser.add_argument("--data", type=Path, help="folder for the database files; default: memory")
    parser.add_argument("--auth", metavar="USER:PASSWORD")
    parser.add_argument("--cert", type=Path, help="certificate (PEM), with --key: serve HTTPS")
    parser.add_argument("--key", type=Path)
    parser.add_argument("--heartbeat", type=float, default=1.0, help="seconds until a lost leader is noticed")
    parser.add_argument("--election", type=float, default=1.0, help="seconds from then to the next leader")
    return parser.parse_args()


if __name__ == "__main__":
    main()
