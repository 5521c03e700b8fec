"""The endpoints for operators: https://rqlite.io/docs/guides/monitoring-rqlite/ (http/service.go, http/nodes.go)."""

from __future__ import annotations

import json
import sqlite3
import time
from typing import Any

from .messages import VERSION, Answer, Call, as_json, plain, text
from .raft import Node, Raft


class Operations:
    def __init__(self, raft: Raft, node: Node, authenticates: bool) -> None:
        self.raft = raft
        self.node = node
        self.authenticates = authenticates

    def readyz(self, call: Call) -> Answer:
        """Answer whether the node accepts writes; ?noleader checks only the process, ?sync also the log."""
        if call.has("noleader"):
            return plain(200, "[+]node ok")
        leader = self.raft.leader()
        if leader is None:
            return plain(503, "[+]node ok\n[+]leader does not exist")
        if not leader.alive:
            refused = f"dial tcp {leader.raft_address}: connect: connection refused"
            return plain(503, f"[+]node ok\n[+]leader not contactable: {refused}")
        lines = "[+]node ok\n[+]leader ok\n[+]store ok\n[+]db ok"
        if call.has("sync"):
            deadline = time.monotonic() + call.seconds("timeout", 30.0)
            while self.node.frozen_since is not None:
                if time.monotonic() >= deadline:
                    return plain(503, "[+]node ok\n[+]leader ok\n[+]store ok\n[+]sync timeout")
                time.sleep(0.01)
            lines += "\n[+]sync ok"
        return plain(200, lines)

    def nodes(self, call: Call) -> Answer:
        described = [self._described(node) for node in self.raft.nodes]
        if call.params.get("ver") == "2":
            return as_json({"nodes": described}, call.has("pretty"))
        return as_json({each["id"]: each for each in described}, call.has("pretty"))

    def leader(self, call: Call) -> Answer:
        """GET names the leader. POST makes another node the leader: the node with `{"id": …}` if the body has one."""
        if call.request.method == "POST":
            wanted = json.loads(call.request.body or b"{}").get("id")
            chosen = next((node.index for node in self.raft.nodes if node.id == wanted), None)
            self.raft.change_leader(chosen)
            return Answer(200)
        leader = self.raft.leader()
        if leader is None:
            return text(503, "leader not found")
        return as_json(self._described(leader), call.has("pretty"))

    def status(self, call: Call) -> Answer:
        """Return the few members that clients use."""
        leader = self.raft.leader()
        leads = leader is self.node
        return as_json(
            {
                "build": {"version": VERSION, "branch": "fairlane-stand-in"},
                "http": {
                    "auth": "enabled" if self.authenticates else "disabled",
                    "bind_addr": self.node.api_address.partition("://")[2],
                },
                "store": {
                    "node_id": self.node.id,
                    "leader": {
                        "addr": leader.raft_address if leader else "",
                        "node_id": leader.id if leader else "",
                    },
                    "raft": {"state": "Leader" if leads else "Follower", "term": self.raft.term},
                    "sqlite3": {"version": sqlite3.sqlite_version},
                    "nodes": [{"id": node.id, "addr": node.raft_address} for node in self.raft.nodes],
                },
            },
            call.has("pretty"),
        )

    def _described(self, node: Node) -> dict[str, Any]:
        return {
            "id": node.id,
            "api_addr": node.api_address,
            "addr": node.raft_address,
            "version": VERSION,
            "voter": True,
            "reachable": node.alive,
            "leader": self.raft.leader() is node,
        }
