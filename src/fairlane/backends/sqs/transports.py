"""The transports of the sqs backend."""

from __future__ import annotations

from fairlane.backends.sqs import MANIFEST
from fairlane.model import T
from fairlane.transport import AsyncTransport, Transport


class SqsTransport(Transport[T]):
    """Queue in Amazon SQS (FIFO), through boto3: built on a URL or a client of boto3."""

    manifest = MANIFEST


class AsyncSqsTransport(AsyncTransport[T]):
    """Queue in Amazon SQS (FIFO) for asyncio: built on a URL or a client of aiobotocore."""

    manifest = MANIFEST
