"""Each function alone, on a single server and on a cluster. On the cluster an undeclared key is an error."""

from __future__ import annotations

from typing import Any

import pytest

from fairlane.contract import CLIENT_REVISION
from tests.backends.redis.library import SECOND, BadArguments, LeaseLost, Library
from tests.backends.redis.servers import connect, private

FORTY_HEX = "0" * 40
GROUPS = ["a", "A", "a ", " a", "é", "e\u0301", "{}", "a:b", "'\"", "😀", "x" * 512, "\x01", "\xff"]


def test_a_message_goes_through_the_queue(library: Library) -> None:
    first = library.publish("g", '{"n": 1}', 2, "once")
    second = library.publish("g", '"zwei"')
    assert second == first + 1
    group, seq, event, token, attempts, published_at, expires_at = library.claim("t1", 30 * SECOND, 2)
    assert (group, seq, event, token, attempts) == (b"g", first, b'{"n": 1}', b"t1", 1)
    assert 29 * SECOND < expires_at - published_at < 40 * SECOND
    assert library.call("ack", "g", "t1") == first
    assert library.claim("t2")[1] == second
    assert library.call("ack", "g", "t2") == second
    assert library.claim() is None
    assert library.leftovers() == ["meta"]


def test_every_branch_works_on_a_cluster(library: Library) -> None:
    """A cluster refuses a function that touches a key of another node."""
    for number in range(3):
        library.publish("g", "1", 4, f"id{number}")
    library.claim("t1")
    library.call("extend", "g", "t1", SECOND)
    library.call("nack", "g", "t1", 1)
    while not library.claim("t2"):
        pass
    library.call("nack", "g", "t2", 0)
    for token in ("t3", "t4", "t5"):
        library.claim(token)
        library.call("ack", "g", token)
    library.publish("damaged")
    library.client.delete(library.key("events"))
    assert library.claim() is None
    library.client.hset(library.key("meta"), "head_start", "0")
    library.publish("late", "1", 1)
    for function, *argv in (("revision",), ("queue_status",), ("group_status", 9), ("message_status", "late", 9)):
        library.call(function, *argv)
    library.call("publish_many", "new", "1", 4, "id", "late", "2", 0, "", "other", "3", 0, "id")
    assert len(library.call("claim_many", "w", SECOND, 0, 10, "t")) == 2
    library.call("ack_many", "new", "t.2")
    library.call("ack_and_claim", "late", "t.1", "w", SECOND, 0, "t6")


def test_texts_are_kept_byte_for_byte(library: Library) -> None:
    for number, group in enumerate(GROUPS):
        event = '{"payload": "\\u0000 ' + group.replace("\\", "").replace('"', "") + '"}'
        library.publish(group, event, 0, f"{group} {number}")
        reply = library.claim(f"t{number}", worker=f"worker {group}")
        assert (reply[0].decode(), reply[2].decode()) == (group, event)
        row = library.call("group_status", 1)[0]
        assert (row[0].decode(), row[5].decode()) == (group, f"worker {group}")
        assert library.call("message_status", group, 1)[0][5].decode() == f"{group} {number}"
        library.call("ack", group, f"t{number}")
    assert library.leftovers() == ["meta"]


def test_a_large_event_is_neither_parsed_nor_changed(library: Library) -> None:
    event = b"not JSON at all \x00\xff" + bytes(range(256)) * 20_000
    library.publish("g", event)
    assert library.claim()[2] == event
    assert library.call("message_status", "g", 1)[0][8] == event


def test_groups_whose_names_begin_alike_are_kept_apart(library: Library) -> None:
    for group in ("a", "a\x01", "a ", "aa"):
        library.publish(group)
    assert [row[3] for row in library.call("group_status", 9)] == [1, 1, 1, 1]
    library.claim("t")
    library.call("ack", "a", "t")
    assert [row[0] for row in library.call("group_status", 9)] == [b"a\x01", b"a ", b"aa"]


@pytest.mark.parametrize("number", [99, 2**32, 999_999_999_999_999, 10**15])
def test_seq_is_exact(library: Library, number: int) -> None:
    library.client.hset(library.key("meta"), "seq", number)
    assert library.publish("g") == number + 1
    assert library.claim("t")[1] == number + 1
    assert library.call("message_status", "g", 1)[0][1] == number + 1
    assert library.call("ack", "g", "t") == number + 1


def test_the_order_of_messages_is_kept_across_powers_of_ten(library: Library) -> None:
    library.client.hset(library.key("meta"), "seq", 95)
    seqs = [library.publish("g") for _ in range(20)]
    for seq in seqs:
        assert library.claim("t")[1] == seq
        library.call("ack", "g", "t")


WRONG: list[tuple[str, list[Any]]] = [
    ("publish", []),
    ("publish", ["g", "1", 0]),
    ("publish", ["g", "1", 0, "", "extra"]),
    ("publish", ["", "1", 0, ""]),
    ("publish", ["a\0b", "1", 0, ""]),
    ("publish", ["g", "1", 5, ""]),
    ("publish", ["g", "1", -1, ""]),
    ("publish", ["g", "1", "", ""]),
    ("publish", ["g", "1", "1.5", ""]),
    ("publish", ["g", "1", "0x1", ""]),
    ("claim", []),
    ("claim", ["w", 0, 0, "t"]),
    ("claim", ["w", 43_200_000_001, 0, "t"]),
    ("claim", ["w", "nan", 0, "t"]),
    ("claim", ["w", "1e3", 0, "t"]),
    ("claim", ["w", SECOND, 5, "t"]),
    ("claim", ["w", SECOND, 0, ""]),
    ("claim", ["w", SECOND, 0, "-"]),
    ("claim", ["w", SECOND, 0, "a b"]),
    ("ack", ["g"]),
    ("nack", ["g", "t"]),
    ("nack", ["g", "t", -1]),
    ("nack", ["g", "t", 31_536_000_000_001]),
    ("extend", ["g", "t"]),
    ("extend", ["g", "t", 0]),
    ("publish_many", ["g"]),
    ("publish_many", ["g", "1", 0, "", "h", "2", 0]),
    ("publish_many", ["g", "1", 0, "", "", "2", 0, ""]),
    ("publish_many", ["g", "1", 0, "", "a\0b", "2", 0, ""]),
    ("publish_many", ["g", "1", 0, "", "h", "2", 5, ""]),
    ("publish_many", ["g", "1", "", "", "h", "2", 0, ""]),
    ("publish_many", ["g", "1", 0, ""] * 1001),
    ("claim_many", ["w", SECOND, 0, 10]),
    ("claim_many", ["w", 0, 0, 10, "t"]),
    ("claim_many", ["w", SECOND, 5, 10, "t"]),
    ("claim_many", ["w", SECOND, 0, 0, "t"]),
    ("claim_many", ["w", SECOND, 0, 1001, "t"]),
    ("claim_many", ["w", SECOND, 0, 10, ""]),
    ("claim_many", ["w", SECOND, 0, 10, "-"]),
    ("claim_many", ["w", SECOND, 0, 10, "a b"]),
    ("ack_many", ["g"]),
    ("ack_many", ["g", "t", "h"]),
    ("ack_many", ["g", "t"] * 1001),
    ("ack_and_claim", ["g", "t"]),
    ("ack_and_claim", ["g", "t", "w", 0, 0, "new"]),
    ("ack_and_claim", ["g", "t", "w", SECOND, 5, "new"]),
    ("ack_and_claim", ["g", "t", "w", SECOND, 0, "-"]),
    ("revision", ["extra"]),
    ("pause", []),
    ("pause", ["a\0b"]),
    ("pause", ["g", "extra"]),
    ("resume", []),
    ("resume", ["g", "extra"]),
    ("queue_status", ["extra"]),
    ("queue_status", [1, "extra"]),
    ("group_status", []),
    ("group_status", [0]),
    ("group_status", [10_001]),
    ("message_status", ["g"]),
    ("message_status", ["g", "all"]),
]


@pytest.mark.parametrize(("function", "argv"), WRONG, ids=lambda value: str(value)[:40])
def test_wrong_arguments_change_nothing(library: Library, function: str, argv: list[Any]) -> None:
    with pytest.raises(BadArguments):
        library.call(function, *argv)
    assert library.leftovers() == ["meta"]
    assert set(library.client.hgetall(library.key("meta"))) == {b"revision", b"serves", b"head_start"}


@pytest.mark.parametrize("token", ["-", "", "t ", "T", FORTY_HEX])
def test_only_the_token_proves_a_lease(library: Library, token: str) -> None:
    library.publish("g")
    library.claim("t")
    for function, *argv in (("ack",), ("nack", 0), ("extend", SECOND)):
        with pytest.raises(LeaseLost):
            library.call(function, "g", token, *argv)


@pytest.mark.parametrize("token", ["-", "", "t"])
def test_nobody_holds_a_free_group(library: Library, token: str) -> None:
    library.publish("g")
    library.claim("t")
    library.call("nack", "g", "t", 0)
    for group in ("g", "no such group", ""):
        for function, *argv in (("ack",), ("nack", 0), ("extend", SECOND)):
            with pytest.raises(LeaseLost):
                library.call(function, group, token, *argv)


@pytest.mark.parametrize(
    ("function", "argv"),
    [("revision", []), ("queue_status", [1]), ("group_status", [10]), ("message_status", ["g", 10])],
)
def test_looking_writes_nothing(library: Library, function: str, argv: list[Any]) -> None:
    library.publish("g")
    library.call(function, *argv, command="FCALL_RO")


def test_an_idle_claim_writes_nothing() -> None:
    with private() as server, connect(server.url) as client:
        library = Library(client)
        library.publish("g")
        library.claim("t")
        before = client.info("persistence")["rdb_changes_since_last_save"]
        for _ in range(5):
            assert library.claim("other") is None
            assert library.call("claim_many", "w", SECOND, 0, 10, "other") == []
        assert client.info("persistence")["rdb_changes_since_last_save"] == before


def test_revision_says_what_a_client_must_know(library: Library) -> None:
    assert library.call("revision") == [CLIENT_REVISION.encode(), CLIENT_REVISION.encode(), b"1", b"noeviction"]
    library.client.delete(library.key("meta"))
    assert library.call("revision") == [None, None, None, b"noeviction"]


def test_ten_thousand_groups_leave_nothing_behind(single: Any) -> None:
    library = Library(single)
    pipeline = single.pipeline(transaction=False)
    command = ["FCALL", f"{library.queue}_publish", len(library.keys), *library.keys]
    for number in range(10_000):
        pipeline.execute_command(*command, f"g{number}", "1", number % 5, f"id{number}")
    pipeline.execute()
    for number in range(10_000):
        token = f"t{number}"
        group = library.claim(token)[0]
        library.call("ack", group, token)
    assert library.leftovers() == ["meta"]
    assert single.hlen(library.key("meta")) <= 6
    library.remove()
