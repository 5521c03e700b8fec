"""The manifest describes a backend to the rest of the package without importing its driver.

Code outside this folder never compares the name of a backend. It asks the manifest.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, TypeAlias

from fairlane.backends.base import Backend
from fairlane.backends.targets import Choices, Target
from fairlane.capabilities import Capabilities
from fairlane.errors import MissingExtra

if TYPE_CHECKING:
    from fairlane.async_transport import AsyncTransport
    from fairlane.transport import Transport

TransportClasses: TypeAlias = "tuple[type[Transport[Any]], type[AsyncTransport[Any]]]"


@dataclass(frozen=True, slots=True)
class Option:
    """One option of a backend: a keyword argument of its transports, and a parameter in the query of its URLs.

    Attributes:
        read: checks and converts a value. It gets the option's name and the value.
        default: the value if the caller gives none. It is not passed to `read`.
        unit: the unit of a number, for example seconds.
        doc: its purpose, in one or two sentences.
        in_url: a URL may contain it.
        for_url: transports that are made from a URL accept it.
        for_client: transports that are made from the application's own client, pool or connection accept it.
        aliases: other names that a URL may use.
    """

    name: str
    read: Callable[[str, object], Any]
    default: Any
    doc: str
    unit: str | None = None
    in_url: bool = True
    for_url: bool = True
    for_client: bool = False
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """The description of one backend.

    Attributes:
        name: its name, in `STM_TRANSPORT_BACKEND` and as the extra that installs its drivers.
        schemes: the schemes of its URLs.
        drivers: the modules that the extra installs; empty if it needs no driver.
        capabilities: the promises of the contract that it keeps.
        options: the options of its URLs and transports.
        dialect: the name under which a revision lists its templates; None if it has no templates.
        choices: the fields of `Choices` that its migrations accept.
        default_url: the URL to use if the environment variables name only the backend.
        load: imports the core and the executors, and with them the driver.
        transports: imports the blocking and the asyncio transport.
        target: makes the target of a migration. None if nothing is migrated: then the first transport makes the queue.
    """

    name: str
    schemes: tuple[str, ...]
    capabilities: Capabilities
    load: Callable[[], Backend[Any, Any]]
    transports: Callable[[], TransportClasses]
    target: Callable[[str, Choices], Target] | None = None
    drivers: tuple[str, ...] = ()
    options: tuple[Option, ...] = ()
    dialect: str | None = None
    choices: frozenset[str] = frozenset()
    default_url: str | None = None

    @property
    def installed(self) -> bool:
        """Whether its drivers are installed."""
        return all(find_spec(driver) is not None for driver in self.drivers)

    def loaded(self) -> Backend[Any, Any]:
        """Import and return the core and the executors.

        Raises:
            MissingExtra: the driver is not installed.
        """
        try:
            return self.load()
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] in self.drivers:
                raise MissingExtra(self.name) from error
            raise
