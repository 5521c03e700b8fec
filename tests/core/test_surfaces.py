"""The two transport classes, the backends and the documentation of the public names must agree."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

import fairlane
from fairlane import async_transport, transport
from fairlane.backends import MANIFESTS
from fairlane.capabilities import PROMISES

PAIRS = [
    (transport.Transport, async_transport.AsyncTransport),
    (transport.Inspector, async_transport.AsyncInspector),
    *(manifest.transports() for manifest in MANIFESTS.values()),
]
TWIN_NAMES = {"__aenter__": "__enter__", "__aexit__": "__exit__"}


def surface(kind: Any) -> Any:
    """Return public methods and properties with their parameters and defaults."""
    found: dict[str, Any] = {}
    for name in dir(kind):
        value = inspect.getattr_static(kind, name)
        if name.startswith("_") and name not in ("__enter__", "__exit__", "__aenter__", "__aexit__", "__init__"):
            continue
        if name == "__init__" and not hasattr(kind, "from_url"):
            continue
        if isinstance(value, property):
            found[name] = "property"
            continue
        function = value.__func__ if isinstance(value, classmethod) else value
        if inspect.isfunction(function):
            parameters = inspect.signature(function).parameters.values()
            found[TWIN_NAMES.get(name, name)] = [(p.name, p.kind, p.default, p.annotation) for p in parameters][1:]
            if name == "__init__":  # the clients of the two twins have different types
                found[name][0] = found[name][0][:3]
    return found


@pytest.mark.parametrize(("sync", "asynchronous"), PAIRS)
def test_twins_have_the_same_methods_and_signatures(sync: Any, asynchronous: Any) -> None:
    assert surface(sync) == surface(asynchronous)


def test_async_methods_are_coroutines_and_sync_ones_are_not() -> None:
    for name in ("publish", "claim", "ack", "nack", "extend", "close"):
        assert inspect.iscoroutinefunction(getattr(async_transport.AsyncTransport, name))
        assert not inspect.iscoroutinefunction(getattr(transport.Transport, name))


def test_every_backend_has_both_twins_and_its_capabilities() -> None:
    for name, manifest in MANIFESTS.items():
        sync, asynchronous = manifest.transports()
        assert sync.manifest is asynchronous.manifest is manifest
        assert manifest.name == manifest.capabilities.backend == name
        assert asynchronous.__name__ == f"Async{sync.__name__}"
        for kind in (sync, asynchronous):
            assert getattr(fairlane, kind.__name__) is kind


def test_connect_and_its_twin_take_the_same_arguments() -> None:
    parameters = [
        [(p.name, p.kind, p.default) for p in inspect.signature(function).parameters.values()]
        for function in (fairlane.connect, fairlane.connect_async)
    ]
    assert parameters[0] == parameters[1]


def documented() -> Any:
    for name in fairlane.__all__:
        value = getattr(fairlane, name)
        if inspect.isfunction(value) or inspect.isclass(value):
            yield name, value
        for member, function in vars(value).items() if inspect.isclass(value) else ():
            if inspect.isfunction(function) and not member.startswith("_"):
                yield f"{name}.{member}", function
    for kind in (
        transport.Transport,
        async_transport.AsyncTransport,
        transport.Inspector,
        async_transport.AsyncInspector,
    ):
        for member, function in vars(kind).items():
            if inspect.isfunction(function) and not member.startswith("_"):
                yield f"{kind.__name__}.{member}", function
    for name in fairlane.migrate.__all__:
        yield f"migrate.{name}", getattr(fairlane.migrate, name)


DOCUMENTED = dict(documented())
NOT_IMPERATIVE = (
    "Returns",
    "Gets",
    "Raises",
    "Sets",
    "Tells",
    "Makes",
    "Gives",
    "Checks",
    "This function",
    "A function",
)


@pytest.mark.parametrize("name", sorted(DOCUMENTED))
def test_every_public_name_says_what_it_does_in_its_first_line(name: str) -> None:
    value = DOCUMENTED[name]
    text = (value.__doc__ or "").strip()
    assert text, "no docstring"
    first = text.splitlines()[0]
    assert first[0].isupper()
    if inspect.isfunction(value):
        assert not first.startswith(NOT_IMPERATIVE), f"begin with a verb in the imperative: {first}"


def test_capabilities_are_given_by_url_and_by_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for entry in MANIFESTS.values():
        assert fairlane.capabilities(f"{entry.schemes[0]}://host/x") is entry.capabilities
    monkeypatch.setenv("FAIRLANE_URL", "redis://somewhere")
    monkeypatch.delenv("STM_TRANSPORT_BACKEND", raising=False)
    assert fairlane.capabilities().backend == "redis"
    with pytest.raises(fairlane.ConfigurationError):
        fairlane.capabilities("nothing://x")


def test_capabilities_declare_differences_of_promises_that_exist() -> None:
    for entry in (manifest.capabilities for manifest in MANIFESTS.values()):
        assert set(entry.differences) <= set(PROMISES)
        assert all(entry.keeps(n) == (n not in entry.differences) for n in PROMISES)
        assert entry.priorities or {6, 13} & set(entry.differences)
    with pytest.raises(ValueError):
        MANIFESTS["memory"].capabilities.keeps(15)


def test_every_promise_has_a_test_in_the_contract_suite() -> None:
    """The test reads the markers of the test modules as text: collecting the tests would need the servers."""
    import re
    from pathlib import Path

    marked = set()
    for path in (Path(__file__).parents[1] / "contract").glob("test_*.py"):
        for numbers in re.findall(r"mark\.promise\(([\d, ]+)\)", path.read_text()):
            marked |= {int(number) for number in numbers.split(",")}
    assert marked == set(PROMISES)
