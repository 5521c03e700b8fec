"""Requests that are applied twice do no harm. This happens on libSQL and rqlite, where an answer can be lost."""

from __future__ import annotations

from typing import Any


def test_a_claim_applied_twice_is_one_lease(resent: Any) -> None:
    for name in ("a", "b"):
        resent.publish(name)
    first = resent.claim(token="t")
    before = resent.rows("select * from q_groups")
    resent.now += 1_000_000
    assert resent.claim(token="t") == first
    assert resent.rows("select * from q_groups") == before
    assert resent.must_claim()["group_id"] == "b"


def test_a_claim_applied_twice_on_different_floors_is_one_lease(resent: Any) -> None:
    resent.publish("low")
    resent.publish("high", priority=3)
    first = resent.claim(token="t")
    assert resent.claim(token="t", floor=3) == first


def test_a_claim_applied_again_after_its_lease_expired_renews_the_lease(resent: Any) -> None:
    resent.publish("a")
    first = resent.claim(visibility=1, token="t")
    resent.now += 5_000_000
    again = resent.claim(visibility=1, token="t")
    assert (again["group_id"], again["attempts"]) == ("a", first["attempts"] + 1)
    assert again["expires_at"] > first["expires_at"]
    assert resent.claim() is None


def test_a_claim_applied_again_does_not_touch_the_lease_of_the_next_worker(resent: Any) -> None:
    resent.publish("a")
    resent.claim(visibility=1, token="late")
    resent.now += 5_000_000
    holder = resent.must_claim()
    assert resent.claim(token="late") is None
    assert resent.ack(holder)


def test_an_extend_keeps_a_repeated_claim_from_shortening_the_lease(resent: Any) -> None:
    resent.publish("a")
    lease = resent.claim(visibility=1, token="t")
    ends = resent.extend(lease, 60)
    assert resent.claim(visibility=1, token="t")["expires_at"] == ends


def test_ack_nack_and_extend_applied_twice_harm_nobody(resent: Any) -> None:
    resent.publish("a", "1")
    resent.publish("a", "2")
    lease = resent.must_claim()
    assert resent.extend(lease) is not None
    assert resent.extend(lease) is not None
    assert resent.ack(lease)
    assert not resent.ack(lease)
    lease = resent.must_claim()
    assert lease["event"] == "2"
    assert resent.nack(lease)
    assert not resent.nack(lease)
    assert resent.must_claim()["event"] == "2"


def test_a_publish_applied_twice_is_one_message(resent: Any) -> None:
    values = {"group_id": "g", "event": "1", "priority": 0, "dedup_id": "d", "call_id": "c"}
    assert resent.call("publish", **values) == resent.call("publish", **values)
    assert resent.rows("select count(*) from q_messages") == [(1,)]
    resent.ack(resent.must_claim())
    assert resent.call("publish", **values) == []
    assert resent.call("finished", call_id="c") == [(1,)]
    assert resent.claim() is None


def test_a_claim_applied_again_after_its_ack_gives_its_token_to_no_other_message(resent: Any) -> None:
    """Guards against an ack that checks only the token. The late claim leases the next message under the same token. If
    the first lease were acked again, this ack would finish a message that no worker has seen."""
    resent.publish("g", '"A"')
    resent.publish("g", '"B"')
    lease = resent.must_claim()
    assert resent.ack(lease)
    ghost = resent.claim(token=lease["token"])
    assert ghost is not None
    assert ghost["event"] == '"B"'
    assert not resent.ack(lease)
    assert not resent.nack(lease)
    assert resent.extend(lease) is None
    assert resent.ack(ghost)
