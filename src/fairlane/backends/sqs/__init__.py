"""The Amazon SQS backend, with FIFO queues. It has no stored operations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlane.backends.base import Backend
from fairlane.backends.manifest import Manifest, TransportClasses
from fairlane.backends.sqs.options import OPTIONS
from fairlane.backends.targets import Choices, Target
from fairlane.capabilities import Capabilities
from fairlane.contract import MAX_VISIBILITY

if TYPE_CHECKING:
    from fairlane.backends.sqs.wire import Answer, Request


def _load() -> Backend[Request, Answer]:
    from fairlane.backends.sqs.core import SqsCore
    from fairlane.backends.sqs.executor import AsyncSqsExecutor, SqsExecutor

    return Backend(SqsCore, SqsExecutor, AsyncSqsExecutor)


def _transports() -> TransportClasses:
    from fairlane.backends.sqs.transports import AsyncSqsTransport, SqsTransport

    return SqsTransport, AsyncSqsTransport


def _target(url: str, choices: Choices) -> Target:
    from fairlane.backends.sqs.target import SqsTarget

    return SqsTarget(url, choices)


MANIFEST = Manifest(
    name="sqs",
    schemes=("sqs",),
    drivers=("boto3", "botocore", "aiobotocore"),
    choices=frozenset({"head_start"}),
    options=OPTIONS,
    load=_load,
    transports=_transports,
    target=_target,
    capabilities=Capabilities(
        "sqs",
        server="Amazon SQS (FIFO)",
        durability="always",
        clock="client",
        resolution=1.0,
        priorities=False,
        fairness=False,
        strict_ties=False,
        head_start=False,
        extend_after_expiry=False,
        dedup_seconds=300,
        exact_counts=False,
        inspect_messages=False,
        release=False,
        pause=False,
        atomic_batches=False,
        claim_wait=1.0,
        max_event_bytes=1024 * 1024,
        max_delay=MAX_VISIBILITY,
        tested_messages=200,
        differences={
            2: "a claim searches for a second; behind a large backlog of blocked groups SQS may not find a free group",
            3: "an expired lease is lost at once; a lease that another transport has nacked may work until a worker "
            "claims its message; no lease lasts longer than 12 hours from its claim, also after extend",
            4: "SQS's clock ends leases; expires_at is measured by the client's clock",
            5: "SQS chooses the order among groups",
            6: "there are no priorities",
            7: "figures are approximate, and groups and messages are not shown; SQS deletes messages after 14 days",
            9: "a dedup_id counts for five minutes from its publish, even if the message was acked",
            12: "the longest delay is 12 hours, counted from the claim",
        },
    ),
)
