"""Options are read alike from URLs and from Python, on every backend, and documented where they are declared."""

from __future__ import annotations

import inspect
from importlib import import_module
from importlib.util import find_spec
from typing import Any, get_type_hints

import pytest

from fairlane.backends import MANIFESTS
from fairlane.backends.manifest import Option
from fairlane.backends.shared.options import (
    boolean,
    choice,
    count,
    optional,
    read_options,
    seconds,
    text,
    without_options,
)
from fairlane.errors import ConfigurationError

OPTIONS = (
    Option("patience", seconds(0.5, 60), default=10.0, doc="", unit="seconds"),
    Option("limit", count(1, 100), default=5, doc=""),
    Option("strict", boolean, default=True, doc="", for_client=True),
    Option("token", optional(text), default=None, doc="", aliases=("authToken",)),
    Option("handle", text, default=None, doc="", in_url=False),
    Option("mode", choice("fast", "safe"), default="safe", doc=""),
)
DEFAULTS = {"patience": 10.0, "limit": 5, "strict": True, "token": None, "handle": None, "mode": "safe"}

declared = pytest.mark.parametrize(
    "manifest",
    [each for each in MANIFESTS.values() if find_spec(f"fairlane.backends.{each.name}.options")],
    ids=lambda manifest: manifest.name,
)


class TestDeclarations:
    @declared
    def test_typed_keywords_declared_options_and_manifest_are_the_same(self, manifest: Any) -> None:
        module = import_module(f"fairlane.backends.{manifest.name}.options")
        (keywords,) = [
            each for name, each in vars(module).items() if name.endswith("Options") and hasattr(each, "__total__")
        ]
        assert not keywords.__total__
        assert list(get_type_hints(keywords)) == [option.name for option in module.OPTIONS]
        assert module.OPTIONS is manifest.options

    @declared
    def test_both_transports_take_the_typed_keywords(self, manifest: Any) -> None:
        for transport in manifest.transports():
            last = list(inspect.signature(transport.from_url).parameters.values())[-1]
            assert last.kind is inspect.Parameter.VAR_KEYWORD
            assert str(last.annotation).startswith("Unpack[")

    @pytest.mark.parametrize("manifest", MANIFESTS.values(), ids=lambda manifest: manifest.name)
    def test_every_option_has_a_doc_and_a_default_that_its_own_reader_takes(self, manifest: Any) -> None:
        for option in manifest.options:
            assert option.doc.endswith(".")
            if option.default is not None:
                assert option.read(option.name, option.default) == option.default


class TestReading:
    @pytest.mark.parametrize(
        ("name", "value", "read"),
        [
            ("patience", 3, 3.0),
            ("patience", "3", 3.0),
            ("limit", 7, 7),
            ("limit", "7", 7),
            ("strict", False, False),
            ("strict", "no", False),
            ("strict", "0", False),
            ("token", "a b", "a b"),
            ("token", None, None),
            ("token", "none", None),
            ("mode", "FAST", "fast"),
        ],
    )
    def test_text_of_a_url_and_values_of_python_are_read_alike(self, name: str, value: Any, read: Any) -> None:
        found = read_options("some", OPTIONS, "some://host", {name: value})[name]
        assert (type(found), found) == (type(read), read)
        if isinstance(value, str):
            assert read_options("some", OPTIONS, f"some://host?{name}={value.replace(' ', '%20')}", {})[name] == read

    @pytest.mark.parametrize(
        ("name", "values"),
        [
            ("patience", [True, False, "", "x", "nan", "inf", 0.4, 61, None, 10**400, [1], b"3"]),
            ("limit", [True, 0, 101, 2.0, "2.0", "-2", " 2", "٣", None, "", "1e1"]),
            ("strict", ["", "2", 2, None, "yess"]),
            ("token", [1, True, b"x"]),
            ("mode", ["", "slow", True, None, 1]),
        ],
    )
    def test_what_breaks_the_rule_is_refused_with_the_name(self, name: str, values: Any) -> None:
        """Guards against `True` as a number: it would mean one second."""
        for value in values:
            with pytest.raises(ConfigurationError, match=f"^{name} must be"):
                read_options("some", OPTIONS, "some://host", {name: value})

    def test_defaults_fill_in_and_a_keyword_wins_over_the_url(self) -> None:
        assert read_options("some", OPTIONS, "some://host", {}) == DEFAULTS
        assert read_options("some", OPTIONS, "some://host?limit=3&mode=fast", {"limit": 4}) == {
            **DEFAULTS,
            "limit": 4,
            "mode": "fast",
        }

    def test_another_spelling_in_the_url_means_the_same_option(self) -> None:
        assert read_options("some", OPTIONS, "some://host?authToken=x", {})["token"] == "x"
        assert read_options("some", OPTIONS, "some://host?authToken=x", {"token": "y"})["token"] == "y"

    def test_a_secret_is_not_repeated(self) -> None:
        with pytest.raises(ConfigurationError) as caught:
            read_options("some", OPTIONS, "some://host", {"token": b"secret"})
        assert "secret" not in str(caught.value)

    @pytest.mark.parametrize(
        ("url", "keywords", "message"),
        [
            ("some://host", {"limits": 3}, "some has no option limits; known are handle, limit, mode, patience"),
            ("some://host?limits=3", {}, "some has no option limits in its URL; known are limit, mode, patience"),
            ("some://host?handle=3", {}, "some has no option handle in its URL; known are limit, mode"),
            (None, {"limit": 3}, "some has no option limit for the application's client; known are strict$"),
        ],
    )
    def test_what_is_unknown_is_refused_with_a_list_of_what_there_is(
        self, url: str, keywords: Any, message: Any
    ) -> None:
        with pytest.raises(ConfigurationError, match=message):
            read_options("some", OPTIONS, url, keywords)

    def test_a_driver_gets_its_url_without_options_that_are_ours(self) -> None:
        url = "some://u:p@host/db?sslmode=disable&limit=3&%6cimit=4&authToken=x&a=%20+#end"
        assert read_options("some", OPTIONS, url, {}, others=True)["limit"] == 4
        assert without_options(url, OPTIONS) == "some://u:p@host/db?sslmode=disable&a=%20+#end"
        assert without_options("some://host?limit=3", OPTIONS) == "some://host"
        assert without_options("some://host?", OPTIONS) == "some://host?"
        assert without_options("some://[::1]:7,b:8/x?limit=3&y=1", OPTIONS) == "some://[::1]:7,b:8/x?y=1"
