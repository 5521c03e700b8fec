"""The Amazon SQS backend (FIFO queues): a code-only adapter."""

from __future__ import annotations

from typing import Any

from fairlane.backends.base import Backend
from fairlane.backends.manifest import Manifest, TransportClasses
from fairlane.backends.sqs.options import OPTIONS
from fairlane.backends.targets import Choices, Target
from fairlane.capabilities import Capabilities
from fairlane.contract import MAX_VISIBILITY


def _load() -> Backend[Any, Any]:
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
        claim_wait=1.0,
        max_event_bytes=1024 * 1024,
        max_delay=MAX_VISIBILITY,
        tested_messages=200,
        differences={
            2: "a claim looks for a second; behind a large backlog of blocked groups SQS may not see a free one",
            3: "a lease that ran out is lost at once; one that another transport gave back may work until somebody "
            "claims its message; none lasts longer than 12 hours from its claim: extend and nack stop there",
            4: "SQS's clock ends leases; expires_at is told by the client's clock",
            5: "the order among groups is SQS's own",
            6: "there are no priorities",
            7: "figures are approximate, groups and messages cannot be looked at; SQS drops messages after 14 days",
            9: "a dedup_id counts for five minutes from its publish, whatever becomes of the message",
            12: "delays end at 12 hours",
        },
    ),
)
