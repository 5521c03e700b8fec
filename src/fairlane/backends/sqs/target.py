"""Migrations of SQS: they create the FIFO queue and write the revision into its tags.

There is no lock, since none is needed: one request creates a queue with its tags, and a second request with the same
attributes changes nothing. A queue that exists keeps its attributes, so that a DBA may add a dead-letter queue,
encryption or another retention period.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from botocore.exceptions import ClientError

from fairlane.backends.base import translated
from fairlane.backends.shared.retry import Unanswered
from fairlane.backends.sqs import wire
from fairlane.backends.sqs.address import parse
from fairlane.backends.sqs.errors import MISSING, code_of, translate
from fairlane.backends.sqs.executor import make_client
from fairlane.backends.targets import Choices, LedgerTarget
from fairlane.errors import ConfigurationError, UnsupportedByBackend

ATTRIBUTES = {
    "FifoQueue": "true",
    # equal events are two messages; every publish sends an id
    "ContentBasedDeduplication": "false",
    # a dedup_id counts in the whole queue, not only in its group
    "DeduplicationScope": "queue",
    "FifoThroughputLimit": "perQueue",
    # 14 days, the maximum; SQS deletes older messages
    "MessageRetentionPeriod": "1209600",
    "DelaySeconds": "0",
}
"""The attributes of a new queue."""


class SqsTarget(LedgerTarget):
    """A queue of SQS as the target of migrations."""

    def __init__(self, url: str, choices: Choices) -> None:
        if choices.head_start is not None:
            raise UnsupportedByBackend("sqs", "head_start", "leave it out, since SQS chooses the order among groups")
        self._address = parse(url, {})
        self._name = wire.queue_name(choices.queue)
        self._made: Any = None

    @property
    def _client(self) -> Any:
        if self._made is None:
            self._made = make_client(self._address)
        return self._made

    def _translated(self) -> translated:
        return translated(self._translate)

    def _translate(self, error: Exception) -> Exception | None:
        known = translate(error, self._address.host)
        return known.error(uncertain=known.uncertain) if isinstance(known, Unanswered) else known

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Do nothing, since no lock is needed."""
        yield

    def _url(self) -> str | None:
        """Return the URL of the queue in SQS, or None if it is not there."""
        try:
            url: str = self._client.get_queue_url(QueueName=self._name)["QueueUrl"]
        except ClientError as error:
            if code_of(error) in MISSING:
                return None
            raise
        return url

    def read(self) -> str | None:
        """Return the current revision, or None if the queue is not there or was not made by a migration."""
        with self._translated():
            url = self._url()
            if url is None:
                return None
            found: str | None = self._client.list_queue_tags(QueueUrl=url).get("Tags", {}).get(wire.REVISION)
        return found

    def stored(self) -> dict[str, str | None] | None:
        """Return the revision of the queue, which is all that SQS stores. None if the queue is not there."""
        with self._translated():
            url = self._url()
            if url is None:
                return None
            tags = self._client.list_queue_tags(QueueUrl=url).get("Tags", {})
        return {"revision": tags.get(wire.REVISION), "serves": tags.get(wire.SERVES)}

    def configure(self, changes: Mapping[str, str], scripts: Sequence[str]) -> None:
        """Refuse: the constructor has refused every choice already."""
        raise UnsupportedByBackend("sqs", ", ".join(changes), "SQS stores no settings")

    def apply(self, scripts: Sequence[str], revision: str | None, *, serves: str | None, stamp: bool) -> None:
        """Apply one step: create, tag or delete the queue."""
        with self._translated():
            url = self._url()
            if revision is None:
                self._remove(url, stamp=stamp)
                return
            tags = {wire.REVISION: revision, wire.SERVES: serves or revision}
            if url is not None:
                self._client.tag_queue(QueueUrl=url, Tags=tags)
            elif stamp:
                raise ConfigurationError(f"SQS has no queue {self._name} to stamp: `upgrade` creates it")
            else:
                self._client.create_queue(QueueName=self._name, Attributes=ATTRIBUTES, tags=tags)

    def _remove(self, url: str | None, *, stamp: bool) -> None:
        if url is None:
            return
        if stamp:
            self._client.untag_queue(QueueUrl=url, TagKeys=[wire.REVISION, wire.SERVES])
        else:
            self._client.delete_queue(QueueUrl=url)

    def offline(self, scripts: Sequence[str], revision: str | None, *, serves: str | None) -> str:
        """Return commands for a shell with AWS's command line tool."""
        if revision is None:
            url = f"$(aws sqs get-queue-url --queue-name {self._name} --query QueueUrl --output text)"
            return f'aws sqs delete-queue --queue-url "{url}"\n'
        tags = json.dumps({wire.REVISION: revision, wire.SERVES: serves or revision})
        attributes = json.dumps(ATTRIBUTES)
        return f"aws sqs create-queue --queue-name {self._name} --attributes '{attributes}' --tags '{tags}'\n"

    def close(self) -> None:
        """Close the connections."""
        if self._made is not None:
            self._made.close()
