"""What the rest of the package knows of a backend before its driver is imported.

Nothing outside this folder compares a backend's name: it asks the manifest.
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
    from fairlane.transport import AsyncTransport, Transport

TransportClasses: TypeAlias = "tuple[type[Transport[Any]], type[AsyncTransport[Any]]]"


@dataclass(frozen=True, slots=True)
class Option:
    """One option of a backend: a keyword argument of its transports, and a parameter in the query of its URLs.

    Attributes:
        read: returns the value that a person wrote, checked; it gets the option's name and the value.
        default: the value when none is given; it is not read.
        unit: of a number, e.g. seconds.
        doc: what it is for, in a sentence or two.
        in_url: it may stand in a URL.
        for_url: transports that are made of a URL take it.
        for_client: transports that are made of the application's own client, pool or connection take it.
        aliases: other spellings that a URL may use.
    """

    name: str
    read: Callable[[str, Any], Any]
    default: Any
    doc: str
    unit: str | None = None
    in_url: bool = True
    for_url: bool = True
    for_client: bool = False
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """A backend in one place.

    Attributes:
        name: as in `STM_TRANSPORT_BACKEND`, and of the extra that installs its drivers.
        schemes: of its URLs.
        drivers: the modules that the extra installs; none means that nothing has to be installed.
        capabilities: what it keeps of the contract.
        options: what its URLs and its transports take besides.
        dialect: under which a revision lists the templates of this backend; None: it has none.
        choices: which choices of a migration it takes, by the names of `Choices`.
        default_url: the URL that is meant when the environment names the backend alone.
        load: imports core and executors, and with them the driver.
        transports: imports the blocking and the asyncio transport.
        target: opens what a migration runs on; None: nothing is migrated, the first transport makes the queue.
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
        """Whether its drivers are there."""
        return all(find_spec(driver) is not None for driver in self.drivers)

    def loaded(self) -> Backend[Any, Any]:
        """Return core and executors.

        Raises:
            MissingExtra: the driver is not installed.
        """
        try:
            return self.load()
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] in self.drivers:
                raise MissingExtra(self.name) from error
            raise
