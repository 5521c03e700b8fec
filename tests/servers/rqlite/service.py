"""The database endpoints of one node: rqlite's http/service.go, http/query_params.go and proxy/proxy.go.

Documentation: https://rqlite.io/docs/api/api/ and https://rqlite.io/docs/api/read-consistency/
"""

from __future__ import annotations

import base64
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from . import operations
from .bodies import BadRequest, Result, Statement, encode_results, parse_request
from .messages import Answer, Call, Request, as_json, duration, parameters, text
from .raft import Entry, Node, NotLeader, Raft, RaftError
from .rewrite import process

LEADER_NOT_FOUND = "leader not found"  # http.ErrLeaderNotFound
STALE_READ = "stale read"  # store.ErrStaleRead
NO_QUEUE = "the stand-in has no queued writes"


@dataclass(frozen=True)
class Credentials:
    """One entry of rqlite's credentials file: https://rqlite.io/docs/guides/security/."""

    username: str
    password: str
    permissions: frozenset[str] = frozenset({"all"})


@dataclass(frozen=True)
class Route:
    prefix: str
    permissions: tuple[str, ...]  # all of these permissions are needed
    methods: tuple[str, ...]
    run: Callable[[Call], Answer]


class Service:
    """Answers the requests to one node."""

    def __init__(self, raft: Raft, node: Node, credentials: tuple[Credentials, ...] = ()) -> None:
        self.raft = raft
        self.node = node
        self.credentials = credentials
        more = operations.Operations(raft, node, bool(credentials))
        self._routes = (
            Route("/db/execute", ("execute",), ("POST",), self._execute),
            Route("/db/query", ("query",), ("GET", "POST"), self._query),
            Route("/db/request", ("query", "execute"), ("POST",), self._request),
            Route("/readyz", ("ready",), ("GET",), more.readyz),
            Route("/nodes", ("status",), ("GET",), more.nodes),
            Route("/status", ("status",), ("GET",), more.status),
            Route("/leader", ("leader-ops",), ("GET", "POST"), more.leader),
        )

    def admit(self, request: Request) -> Call | Answer:
        """Read a request. If it is refused before anything is done, return the answer for that."""
        params = parameters(request)
        for name in ("timeout", "freshness", "db_timeout", "linearizable_timeout"):
            if name in params and duration(params[name]) is None:
                return text(400, f"{name} is not a valid duration")
        if params.get("q") == "":
            return text(400, "query parameter not set")
        route = self._route(request)
        if route is None:
            return Answer(404)
        if not self._authorized(request, route.permissions):
            # an empty body; the challenge makes browsers and clients ask for a password
            return Answer(401, headers={"WWW-Authenticate": 'Basic realm="rqlite"'})
        if request.method not in route.methods:
            return Answer(405)
        call = Call(request, params)
        try:
            call.statements = self._statements(call)
        except BadRequest as error:
            return text(400, str(error))
        return call

    def handle(self, call: Call) -> Answer:
        route = self._route(call.request)
        assert route is not None
        answer = route.run(call)
        answer.headers.update(call.headers)
        return answer

    def _route(self, request: Request) -> Route | None:
        return next((route for route in self._routes if request.path.startswith(route.prefix)), None)

    def _authorized(self, request: Request, permissions: tuple[str, ...]) -> bool:
        if not self.credentials:
            return True
        scheme, _, encoded = request.headers.get("authorization", "").partition(" ")
        try:
            username, _, password = base64.b64decode(encoded).decode().partition(":")
        except ValueError:
            return False
        return scheme.lower() == "basic" and any(
            (each.username, each.password) == (username, password)
            and all(name in each.permissions or "all" in each.permissions for name in permissions)
            for each in self.credentials
        )

    def _statements(self, call: Call) -> tuple[Statement, ...]:
        request = call.request
        if not request.path.startswith("/db/"):
            return ()
        if request.method == "GET":
            if "q" not in call.params:
                raise BadRequest("query parameter not set")
            found = [Statement(call.params["q"])]
        elif request.headers.get("content-type", "").startswith("text/plain"):
            found = [Statement(request.body.decode("utf-8", "replace"))]  # rqlite pull requests 1991 and 1992
        else:
            found = parse_request(request.body)
        # reads are rewritten only if they go through the log (handleQuery)
        if call.has("noparse") or (request.path.startswith("/db/query") and call.level != "strong"):
            return tuple(found)
        rewritten = []
        for each in found:
            done = process(each.sql, rewrite_time=not call.has("norwtime"), rewrite_random=not call.has("norwrandom"))
            rewritten.append(replace(each, sql=done.sql, returns_rows=done.returns_rows))
        return tuple(rewritten)

    def _execute(self, call: Call) -> Answer:
        if call.has("queue"):
            return text(400, NO_QUEUE)
        entry = Entry("execute", call.statements, call.has("transaction"))
        return self._by_leader(call, "Execute", lambda node: self._write(call, node, entry))

    def _query(self, call: Call) -> Answer:
        entry = Entry("query", call.statements, call.has("transaction"))
        if call.level == "none":
            return self._local(call, entry)
        return self._by_leader(call, "Query", lambda node: self._read(node, entry))

    def _request(self, call: Call) -> Answer:
        entry = Entry("request", call.statements, call.has("transaction"))
        if self.raft.read_only(self.node, call.statements) and call.level != "strong":
            if call.level == "none":
                return self._local(call, entry)
            return self._by_leader(call, "Request", lambda node: self._read(node, entry))
        return self._by_leader(call, "Request", lambda node: self._write(call, node, entry))

    def _write(self, call: Call, node: Node, entry: Entry) -> list[Result]:
        switch = call.switch
        if switch and switch.action == "raft_error":
            if switch.applied:
                self.raft.write(node, entry)
            raise RaftError(switch.text)
        return self.raft.write(node, entry, times=2 if switch and switch.action == "apply_twice" else 1)

    def _read(self, node: Node, entry: Entry) -> list[Result]:
        self.raft.require_leader(node)
        return self.raft.read(node, entry)

    def _local(self, call: Call, entry: Entry) -> Answer:
        """level=none: read this node's own database, even if it is old, unless ?freshness sets a limit."""
        limit = call.seconds("freshness")
        silent = self.node.frozen_since
        if limit and silent is not None and time.monotonic() - silent > limit:
            return self._answer(call, [], STALE_READ)
        return self._answer(call, self.raft.read(self.node, entry))

    def _by_leader(self, call: Call, what: str, run: Callable[[Node], list[Result]]) -> Answer:
        """Carry it out here if this node is the leader; otherwise forward or redirect it."""
        try:
            return self._answer(call, run(self.node))
        except RaftError as error:
            return self._answer(call, [], str(error))
        except NotLeader as other:
            leader = other.leader
        if leader is None:
            return text(503, LEADER_NOT_FOUND)
        if call.has("redirect"):
            query = f"?{call.request.query}" if call.request.query else ""
            return Answer(301, headers={"Location": f"{leader.api_address}{call.request.path}{query}"})
        return self._forward(call, what, leader, run)

    def _forward(self, call: Call, what: str, leader: Node, run: Callable[[Node], list[Result]]) -> Answer:
        call.headers["X-RQLITE-SERVED-BY"] = leader.raft_address
        failed = f"node failed to process {what} on remote node at {leader.raft_address}: "
        if not leader.alive:
            refused = f"dial tcp {leader.raft_address}: connect: connection refused"
            return self._answer(call, [], failed + refused)
        try:
            return self._answer(call, run(leader))
        except (RaftError, NotLeader) as error:
            return self._answer(call, [], failed + str(error))

    def _answer(self, call: Call, results: list[Result], error: str = "") -> Answer:
        """HTTP 200, also if SQL failed; an `error` at the top means that the whole request failed."""
        timings = call.has("timings")
        body: dict[str, Any] = {
            "results": encode_results(
                results,
                # ignored by /db/execute: rqlite issue 2372
                associative=call.has("associative") and call.endpoint != "execute",
                blob_array=call.has("blob_array"),
                timings=timings,
            )
        }
        if error:
            body["error"] = error
        if timings:
            body["time"] = 0.000456
        return as_json(body, call.has("pretty"))
