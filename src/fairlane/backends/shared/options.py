"""Read the options of all backends, from URLs and from keyword arguments.

A backend lists its options once, in its `options.py`. The functions below return the `read` of an `Option`. It takes
the option's name and a value, and returns the checked value or raises a `ConfigurationError` that states the rule.
The value is a text from a URL or a Python value; both are read by the same rules. `True` is never a number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import inf
from typing import Any, TypeAlias, TypeVar
from urllib.parse import unquote_plus

from fairlane.backends.manifest import Option
from fairlane.errors import ConfigurationError
from fairlane.urls import options_of, split_url

ValueT = TypeVar("ValueT")
Reader: TypeAlias = Callable[[str, object], ValueT]

_BOOLEANS = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}


def seconds(smallest: float, largest: float = 3600) -> Reader[float]:
    """Read a number of seconds."""

    def read(name: str, value: object) -> float:
        try:
            found = float(value) if isinstance(value, int | float | str) and not isinstance(value, bool) else inf
        except (ValueError, OverflowError):
            found = inf
        if not smallest <= found <= largest:
            raise ConfigurationError(f"{name} must be {smallest:g} to {largest:g} seconds: {value!r:.100}")
        return found

    return read


def count(smallest: int, largest: int = 1_000_000) -> Reader[int]:
    """Read a whole number."""

    def read(name: str, value: object) -> int:
        found = int(value) if isinstance(value, str) and value.isascii() and value.isdecimal() else value
        if isinstance(found, bool) or not isinstance(found, int) or not smallest <= found <= largest:
            raise ConfigurationError(f"{name} must be a whole number from {smallest} to {largest:,}: {value!r:.100}")
        return found

    return read


def boolean(name: str, value: object) -> bool:
    """Read True, 1, true or yes as True, and False, 0, false or no as False."""
    found = value if isinstance(value, bool) else _BOOLEANS.get(str(value).lower())
    if found is None:
        raise ConfigurationError(f"{name} must be 1 or 0: {value!r:.100}")
    return found


def choice(*choices: str) -> Reader[str]:
    """Read one of several words, in upper or lower case."""

    def read(name: str, value: object) -> str:
        if not isinstance(value, str) or value.lower() not in choices:
            raise ConfigurationError(f"{name} must be one of {', '.join(choices)}: {value!r:.100}")
        return value.lower()

    return read


def text(name: str, value: object) -> str:
    """Read any text. The error message does not repeat the value, since it may be a secret."""
    if not isinstance(value, str):
        raise ConfigurationError(f"{name} must be a str, not {type(value).__name__}")
    return value


def ca_file(name: str, value: object) -> str:
    """Read the path of a file of certificates, and check it now instead of at the first request."""
    import ssl  # imported here, since it takes 10 ms and most queues have no certificates

    try:
        ssl.create_default_context(cafile=str(value))
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"{name} is not a readable file of certificates (PEM): {value!r}: {error}") from error
    return str(value)


def optional(read: Reader[ValueT]) -> Reader[ValueT | None]:
    """Read also None, for options that can be switched off. In a URL it is written as `none`."""

    def read_or_none(name: str, value: object) -> ValueT | None:
        return None if value is None or (isinstance(value, str) and value.lower() == "none") else read(name, value)

    return read_or_none


def read_options(
    backend: str, options: tuple[Option, ...], url: str | None, keywords: Mapping[str, object], *, others: bool = False
) -> dict[str, Any]:
    """Return the value of every option: from its keyword, else from the URL's query, else its default.

    Args:
        backend: its name, for messages.
        options: all options of the backend. With a URL those with `for_url` count, without one those with `for_client`.
        url: None for a transport on the application's own client.
        keywords: the keyword arguments. None means the default if the default is None.
        others: whether the URL may have options that the driver reads; see `without_options`.

    Raises:
        ConfigurationError: an option is unknown, or its value is wrong.
    """
    known = [option for option in options if (option.for_client if url is None else option.for_url)]
    query = _query(known, url)
    names = {option.name for option in known}
    in_url = {option.name for option in known if option.in_url}
    _check_names(backend, "" if url is not None else " for the application's client", set(keywords) - names, names)
    if not others:
        _check_names(backend, " in its URL", set(query) - in_url, in_url)
    written = {name: value for name, value in query.items() if name in in_url} | dict(keywords)
    return {option.name: _value(option, written) for option in known}


def without_options(url: str, options: Iterable[Option]) -> str:
    """Return a URL without Fairlane's own options, for a driver that reads the other options."""
    own = {name for option in options if option.in_url for name in (option.name, *option.aliases)}
    query = split_url(url).query
    rest = "&".join(part for part in query.split("&") if unquote_plus(part.partition("=")[0]) not in own)
    return url if rest == query else url.replace(f"?{query}", f"?{rest}" if rest else "", 1)


def _query(known: list[Option], url: str | None) -> dict[str, str]:
    """Return the query of a URL with aliases replaced by the names that options have in Python."""
    names = {alias: option.name for option in known for alias in option.aliases}
    return {} if url is None else {names.get(name, name): value for name, value in options_of(url).items()}


def _value(option: Option, written: Mapping[str, object]) -> Any:
    value = written.get(option.name, option.default)
    if value is None and option.default is None:
        return None
    return option.read(option.name, value) if option.name in written else value


def _check_names(backend: str, where: str, unknown: set[str], known: set[str]) -> None:
    if unknown:
        has = f"known are {', '.join(sorted(known))}" if known else "there are none"
        raise ConfigurationError(f"{backend} has no option {', '.join(sorted(unknown))}{where}; {has}")
