"""The MongoDB backend. It has no stored operations: each step of a program changes a single document."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlane.backends.base import Backend
from fairlane.backends.manifest import Manifest, TransportClasses
from fairlane.backends.mongo.options import OPTIONS
from fairlane.backends.targets import Choices, Target
from fairlane.capabilities import Capabilities

if TYPE_CHECKING:
    from fairlane.backends.mongo.wire import Answer, Request


def _load() -> Backend[Request, Answer]:
    from fairlane.backends.mongo.core import MongoCore
    from fairlane.backends.mongo.executor import AsyncMongoExecutor, MongoExecutor

    return Backend(MongoCore, MongoExecutor, AsyncMongoExecutor)


def _transports() -> TransportClasses:
    from fairlane.backends.mongo.transports import AsyncMongoTransport, MongoTransport

    return MongoTransport, AsyncMongoTransport


def _target(url: str, choices: Choices) -> Target:
    from fairlane.backends.mongo.target import MongoTarget

    return MongoTarget(url, choices)


MANIFEST = Manifest(
    name="mongo",
    schemes=("mongodb", "mongodb+srv"),
    drivers=("pymongo",),
    choices=frozenset({"head_start"}),
    options=OPTIONS,
    load=_load,
    transports=_transports,
    target=_target,
    capabilities=Capabilities(
        "mongo",
        server="MongoDB >= 5.0",
        resolution=1e-3,
        atomic_batches=False,
        tested_messages=300,  # the emulator in the tests is slow with more messages
        differences={
            1: "the message of a publish that did not return may appear later, with the next publish into its group or "
            "with a claim that finds no group",
        },
    ),
)
