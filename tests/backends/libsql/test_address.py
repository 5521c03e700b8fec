"""URLs and options are read correctly, and wrong ones are refused. No server is needed."""

from __future__ import annotations

import base64
from typing import Any

import pytest

import fairlane
from fairlane import ConfigurationError, UnsupportedByBackend
from fairlane.backends.libsql.address import locate


def test_libsql_means_tls_and_the_other_scheme_says_http() -> None:
    assert locate("libsql://db.example.org", {}).url == "https://db.example.org:443/"
    assert locate("libsql+https://db.example.org:444/path/", {}).url == "https://db.example.org:444/path/"
    assert locate("libsql+http://localhost", {}).url == "http://localhost:8080/"
    assert locate("libsql+http://[::1]:81", {}).url == "http://[::1]:81/"


@pytest.mark.parametrize(
    "url",
    [
        "libsql://:to.k-en_@host",
        "libsql://host?authToken=to.k-en_",
        "libsql://host?auth_token=to.k-en_",
    ],
)
def test_a_token_is_the_password_or_an_option_and_is_never_shown(url: str) -> None:
    address = locate(url, {})
    assert address.authorization == "Bearer to.k-en_"
    assert "to.k-en_" not in repr(address) + address.host + address.url
    assert locate("libsql://host", {"auth_token": "to.k-en_"}).authorization == address.authorization


def test_a_user_and_a_password_are_basic_authorization() -> None:
    header = locate("libsql+http://me:p%40ss@host", {}).authorization
    assert header is not None
    assert base64.b64decode(header.removeprefix("Basic ")) == b"me:p@ss"


def test_options_of_the_call_win_over_the_url() -> None:
    address = locate("libsql://h?timeout=1&retry_seconds=2&verify=no", {"timeout": 3})
    assert (address.timeout, address.retry_seconds, address.verify) == (3.0, 2.0, False)
    assert locate("libsql://h", {"timeout": 6}).connect_timeout == 1.0
    assert locate("libsql://h", {}).timeout == 30


WRONG = [
    "libsql://",
    "libsql:///path",
    "libsql://:hidden@",
    "libsql://hidden@host",
    "libsql://:hidden@host:x",
    "libsql://:hidden@host#fragment",
    "libsql://:hid/den@host",
    "libsql://:hid?den@host",
    "libsql://:hid#den@host",
    "libsql://:hid den@host",
    "libsql://:hidden@ho st",
    "libsql://:hidden@host?authToken=hidden",
    "libsql://:hidden@host?timeout=0",
    "libsql://:hidden@host?timeout=nan",
    "libsql://:hidden@host?retry_seconds=-1",
    "libsql://:hidden@host?tls=0",
    "libsql://:hidden@host?colour=red",
    "libsql://:hidden@host?verify=maybe",
    "libsql://:hidden@host?ca_file=/no/such/file",
    "libsql+http://:hidden@host?verify=0",
    "http://:hidden@host",
]


@pytest.mark.parametrize("url", WRONG)
def test_a_wrong_url_is_refused_without_showing_the_token(url: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        locate(url, {})
    assert "hid" not in str(caught.value)
    assert caught.value.__cause__ is None or "hid" not in str(caught.value.__cause__)


def test_files_belong_to_sqlite_and_replicas_are_refused_by_name() -> None:
    with pytest.raises(ConfigurationError, match="SqliteTransport"):
        locate("file:queue.db", {})
    for url, options in (("libsql://h?syncUrl=libsql://x", {}), ("libsql://h", {"sync_url": "libsql://x"})):
        with pytest.raises(UnsupportedByBackend, match="sync_url"):
            locate(url, options)


def test_a_client_of_the_application_must_be_of_the_right_kind_and_of_a_server() -> None:
    import libsql_client

    nothing: Any = object()
    for kind in (fairlane.LibsqlTransport, fairlane.AsyncLibsqlTransport):
        with pytest.raises(ConfigurationError, match=r"libsql_client\.Client"):
            kind(nothing)
    client = libsql_client.create_client_sync("file::memory:")
    with pytest.raises(ConfigurationError, match="SqliteTransport"):
        fairlane.LibsqlTransport(client)
    client.close()
