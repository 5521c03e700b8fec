"""The control address for tests in other processes: POST a call of `Faults` or `Cluster` as JSON.

curl -d '{"call": "drop_answers", "n": 1, "endpoint": "execute"}' http://127.0.0.1:PORT/
curl -d '{"call": "stop_node", "index": 2}' http://127.0.0.1:PORT/
curl http://127.0.0.1:PORT/          # {"leader": 0, "pending": 0, "requests": 12, "urls": […]}
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from .cluster import HOST, Cluster
from .listener import Listener
from .messages import Answer, Request, as_json, text

ON_FAULTS = ("drop_answers", "apply_twice", "refuse", "slow", "raft_error", "reply", "clear")
ON_CLUSTER = (
    "stop_node",
    "start_node",
    "freeze_node",
    "thaw_node",
    "change_leader",
    "lose_leader",
    "forget_seen",
)


def open_door(cluster: Cluster, port: int = 0) -> Listener:
    calls: dict[str, Callable[..., Any]] = {name: getattr(cluster.faults, name) for name in ON_FAULTS}
    calls |= {name: getattr(cluster, name) for name in ON_CLUSTER}

    def respond(request: Request) -> Answer:
        if request.method == "GET":
            state = {
                "leader": cluster.leader,
                "pending": cluster.faults.pending,
                "requests": len(cluster.seen),
                "urls": cluster.urls,
            }
            return as_json(state, pretty=False)
        try:
            arguments = json.loads(request.body)
            answer = calls[arguments.pop("call")](**arguments)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            return text(400, f"{type(error).__name__}: {error}; known calls: {', '.join(calls)}")
        return as_json({"result": answer}, pretty=False)

    return Listener((HOST, port), respond)
