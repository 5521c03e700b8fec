"""URLs and options are read correctly, and wrong ones are refused. No server is needed."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest

import fairlane
from fairlane import ConfigurationError
from fairlane.backends.rqlite.address import locate

URL = "rqlite://me:hidden@a:1"


def test_all_parts_of_a_url_are_read() -> None:
    address = locate("rqlites://me:p%40ss%2F@a:1,b,[::1]:3,[fe80::1]/?timeout=2.5&retry_seconds=0&verify=no", {})
    assert address.nodes == ("https://a:1", "https://b:4001", "https://[::1]:3", "https://[fe80::1]:4001")
    assert address.host == "a:1,b,[::1]:3,[fe80::1]"
    assert address.authorization is not None
    assert base64.b64decode(address.authorization.removeprefix("Basic ")) == b"me:p@ss/"
    assert (address.timeout, address.retry_seconds, address.verify) == (2.5, 0.0, False)
    assert "p@ss" not in repr(address)
    assert address.authorization not in repr(address)


def test_a_url_without_options_has_defaults() -> None:
    address = locate("rqlite://localhost", {})
    assert address.nodes == ("http://localhost:4001",)
    assert address.authorization is None
    assert address.connect_timeout < address.request_timeout < address.timeout == 30
    assert locate(URL, {"timeout": 6}).connect_timeout == 1.0


def test_a_user_may_have_no_password_and_options_win_over_the_url() -> None:
    address = locate("rqlite://me@a?timeout=1", {"timeout": 2})
    assert address.authorization is not None
    assert base64.b64decode(address.authorization.removeprefix("Basic ")) == b"me:"
    assert address.timeout == 2


def test_an_address_that_is_given_twice_is_used_once() -> None:
    assert locate("rqlite://a:1,b:1,a:01", {}).nodes == ("http://a:1", "http://b:1")


WRONG = [
    "rqlite://",
    "rqlite://me:hidden@",
    "rqlite:///path",
    "rqlite://me:hidden@a:1/database",
    "rqlite://me:hidden@a:1#fragment",
    "rqlite://me:hidden@a:1,,b:1",
    "rqlite://me:hidden@a:1,b:x",
    "rqlite://me:hidden@a:0",
    "rqlite://me:hidden@a:65536",
    "rqlite://me:hidden@a:١",
    "rqlite://me:hidden@a b:1",
    "rqlite://me:hidden@[::1:4",
    "rqlite://me:hidden@" + "a" * 64,
    "rqlite://m%3Ae:hidden@a:1",
    "rqlite://me:hid/den@a:1",
    "rqlite://me:hid?den@a:1",
    "rqlite://me:hid#den@a:1",
    "rqlite://me:12?hidden@a:1",
    "rqlite://me:12/hidden@a:1",
    "rqlite://me:hidden@a:1?timeout=0",
    "rqlite://me:hidden@a:1?timeout=nan",
    "rqlite://me:hidden@a:1?timeout=",
    "rqlite://me:hidden@a:1?retry_seconds=-1",
    "rqlite://me:hidden@a:1?level=none",
    "rqlite://me:hidden@a:1?verify=1",
    "rqlites://me:hidden@a:1?verify=maybe",
    "rqlites://me:hidden@a:1?ca_file=/no/such/file",
    "http://me:hidden@a:1",
]


@pytest.mark.parametrize("url", WRONG)
def test_a_wrong_url_is_refused_without_showing_the_password(url: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        locate(url, {})
    assert "hid" not in str(caught.value)
    assert caught.value.__cause__ is None or "hid" not in str(caught.value.__cause__)


@pytest.mark.parametrize(
    ("name", "value"),
    [("timeout", True), ("timeout", "x"), ("timeout", None), ("retry_seconds", 1e9), ("verify", 2), ("colour", "red")],
)
def test_a_wrong_option_is_refused(name: str, value: Any) -> None:
    with pytest.raises(ConfigurationError, match=name):
        locate("rqlites://a", {name: value})


def test_a_file_without_certificates_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "empty.pem"
    path.write_text("nothing")
    with pytest.raises(ConfigurationError, match="ca_file"):
        locate("rqlites://a", {"ca_file": path})
    with pytest.raises(ConfigurationError, match="rqlites"):
        locate("rqlite://a", {"ca_file": path})


def test_making_a_transport_of_a_client_needs_a_url_and_the_right_kind_of_client() -> None:
    import httpx
    import requests

    with pytest.raises(TypeError, match="'url'"):
        fairlane.RqliteTransport(requests.Session())  # type: ignore[call-arg]  # wrong on purpose
    with pytest.raises(ConfigurationError, match=r"requests\.Session"):
        fairlane.RqliteTransport(httpx.AsyncClient(), url=URL)  # type: ignore[arg-type]  # wrong on purpose
    with pytest.raises(ConfigurationError, match=r"httpx\.AsyncClient"):
        fairlane.AsyncRqliteTransport(requests.Session(), url=URL)  # type: ignore[arg-type]  # wrong on purpose
    secured = URL.replace("rqlite:", "rqlites:")
    with pytest.raises(TypeError, match="'verify'"):
        fairlane.RqliteTransport(requests.Session(), url=secured, verify=False)  # type: ignore[call-arg]  # wrong option
