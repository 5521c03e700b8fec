"""A stand-in for rqlite: its HTTP API over real SQLite, on one or three nodes, with switches for faults.

No package registry has a usable build of rqlite, so the tests run on this stand-in. With FAIRLANE_TEST_RQLITE_URL they
run on a real cluster as well. Every behaviour is taken from rqlite's documentation (https://rqlite.io/docs) or source
(https://github.com/rqlite/rqlite, tag v10.2.7 unless another is named). A test in tests/machinery/test_rqlite_*.py
checks it and names its source.

    with rqlite.private(nodes=3, auth="user:secret") as cluster:
        cluster.url                         # rqlite://user:secret@127.0.0.1:1,127.0.0.1:2,127.0.0.1:3
        cluster.urls                        # ["http://127.0.0.1:1", …]
        cluster.faults.drop_answers(1, endpoint="execute", statement="insert into")
        cluster.stop_node(0); cluster.change_leader(); cluster.lose_leader(0.5)
        cluster.seen                        # the requests so far

As a process: python -m tests.servers.rqlite --nodes 3

Not modelled: queued writes, backup and load, read-only nodes, /db/sql, ?db_timeout, ?raft_index, client certificates,
compressed or chunked bodies; columns declared as date or timestamp, which rqlite turns into RFC 3339 texts; a leader
that still serves weak reads after it was deposed; Raft's loss of uncommitted entries (`raft_error` stands for its
effect); SQLite's own version, which is that of Python. Stricter than rqlite: BEGIN and similar statements are refused,
since their effect is not defined in rqlite.
"""

from .cluster import Cluster, Seen, Settings, credentials, private
from .database import Quirks
from .faults import Faults
from .probe import Probe
from .service import Credentials

__all__ = ["Cluster", "Credentials", "Faults", "Probe", "Quirks", "Seen", "Settings", "credentials", "private"]
