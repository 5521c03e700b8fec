"""The parser of all backend URLs: what it reads, and that its messages contain nothing secret."""

from __future__ import annotations

from typing import Any

import pytest

from fairlane import ConfigurationError
from fairlane.urls import Host, parse_url

USUAL = "x://host:1"


def read(url: str, **how: Any) -> Any:
    return parse_url(url, usual=USUAL, **how)


def test_a_url_with_everything() -> None:
    url = read("X+y://us%3Aer:p%2F%40ss%25@a:1,[::1]:2,b.example./pa%2Fth?a=1&b=&a=2%20&c=%C3%A9")
    assert url.scheme == "x+y"
    assert (url.user, url.password) == ("us:er", "p/@ss%")
    assert url.hosts == (Host("a", 1), Host("::1", 2), Host("b.example."))
    assert url.path == "/pa%2Fth"
    assert url.options == {"a": "2 ", "b": "", "c": "é"}
    assert url.shown == "a:1,[::1]:2,b.example."


def test_a_url_with_nothing_but_a_host() -> None:
    url = read("x://h")
    assert (url.user, url.password, url.hosts, url.path, url.options) == (None, None, (Host("h"),), "", {})


@pytest.mark.parametrize(
    ("login", "user", "password"),
    [
        ("me@", "me", None),
        ("me:@", "me", ""),
        (":pw@", "", "pw"),
        ("@", "", None),
        ("me:p:w@", "me", "p:w"),
        ("me:p@w@", "me", "p@w"),
        ("me:100%@", "me", "100%"),
        ("me:[p]@", "me", "[p]"),
        ("me:p w,\n\0@", "me", "p w,\n\0"),
        ("m\u00e9:%C3%A9@", "mé", "é"),
    ],
)
def test_user_and_password(login: Any, user: Any, password: Any) -> None:
    url = read(f"x://{login}h:1")
    assert (url.user, url.password, url.hosts) == (user, password, (Host("h", 1),))


@pytest.mark.parametrize(
    ("text", "host", "shown"),
    [
        ("h", Host("h"), "h:9"),
        ("h:", Host("h"), "h:9"),
        ("h:65535", Host("h", 65535), "h:65535"),
        ("h:01", Host("h", 1), "h:1"),
        ("under_score-1.example", Host("under_score-1.example"), "under_score-1.example:9"),
        ("[::1]", Host("::1"), "[::1]:9"),
        ("[fe80::1%25eth0]:2", Host("fe80::1%eth0", 2), "[fe80::1%eth0]:2"),
        ("b\u00fccher.example", Host("b\u00fccher.example"), "b\u00fccher.example:9"),
    ],
)
def test_hosts(text: str, host: Any, shown: Any) -> None:
    """Guards against `urllib`: its newer versions accept brackets only if there is a single host."""
    for url in (read(f"x://{text}"), read(f"x://u:p[@{text},other:1")):
        assert url.hosts[0] == host
        assert url.hosts[0].at(9) == shown


def test_a_host_may_be_left_out_where_the_backend_has_a_default() -> None:
    assert read("x://:5", needs_host=False).hosts == (Host("", 5),)
    assert read("x://me@", needs_host=False).hosts == ()
    assert read("x:///a@b?c=d@e", needs_host=False).path == "/a@b", "a file may have such a name"


SECRET = "hidden"
LOGIN = f"me:{SECRET}"
WRONG = [
    None,
    7,
    "",
    SECRET,
    f"{SECRET}@host",
    f"x:{SECRET}",
    f"://{SECRET}",
    f"1x://{LOGIN}@h",
    f"x://{LOGIN}@",
    "x://",
    "x:///path",
    f"x://{LOGIN}@:1",
    f"x://{LOGIN}",
    f"x://{LOGIN}@h:x",
    f"x://{LOGIN}@h:0",
    f"x://{LOGIN}@h:65536",
    f"x://{LOGIN}@h:-1",
    f"x://{LOGIN}@h:1\n",
    f"x://{LOGIN}@h:1234567",
    f"x://{LOGIN}@h:\u0661",
    f"x://{LOGIN}@h h",
    f"x://{LOGIN}@h,,i",
    f"x://{LOGIN}@h,i:x",
    f"x://{LOGIN}@[::1",
    f"x://{LOGIN}@::1",
    f"x://{LOGIN}@[{SECRET}]",
    f"x://{LOGIN}@[::1]x",
    f"x://{LOGIN}@a..example",
    f"x://{LOGIN}@.example",
    f"x://{LOGIN}@{'a' * 64}",
    f"x://{LOGIN}@{'é' * 64}",
    f"x://{LOGIN}@\u2100",
    f"x://{LOGIN}@\ud800",
    f"x://me:{SECRET}\ud800@h",
    f"x://me:{SECRET}%ff@h",
    f"x://me:{SECRET}/et@h",
    f"x://me:{SECRET}?et@h",
    f"x://me:{SECRET}#et@h",
    f"x://me:12/{SECRET}@h",
    f"x://me:12?{SECRET}@h:1",
    f"x://{LOGIN}@h?token=a@b",
    f"x://{LOGIN}@h?token={SECRET}%ff",
    f"x://{LOGIN}@h?token={SECRET}\ud800",
    f"x://{LOGIN}@h#{SECRET}",
    f"x://{LOGIN}@h/path#",
]


@pytest.mark.parametrize("url", WRONG, ids=ascii)
def test_a_wrong_url_is_one_error_that_repeats_no_part_of_it(url: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        read(url)
    assert USUAL in str(caught.value)
    assert "hid" not in str(caught.value)
    assert (caught.value.__cause__, caught.value.__context__) == (None, None), "a traceback would show it"


def test_nothing_secret_shows_in_what_was_read() -> None:
    url = read(f"x://{LOGIN}@h?token={SECRET}")
    assert SECRET not in repr(url)
    assert SECRET not in url.shown
