"""The kit of Amazon SQS."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from tests.harness.kits.base import Kit


class SqsKit(Kit):
    backend = "sqs"
    variable = "FAIRLANE_TEST_SQS_URL"
    batches = False

    def options(self, twin: str) -> dict[str, Any]:
        return {"startup_timeout": 30.0}  # on a machine that is busy with many tests the JVM may wait for seconds

    def now(self, queue: str) -> datetime:
        return datetime.now(UTC)

    def leftovers(self, queue: str) -> dict[str, int]:
        from fairlane.backends.sqs.address import parse
        from fairlane.backends.sqs.executor import make_client

        client = make_client(parse(self.url(queue), {}))
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        url = client.get_queue_url(QueueName=f"{queue}.fifo")["QueueUrl"]
        counts = client.get_queue_attributes(QueueUrl=url, AttributeNames=names)["Attributes"]
        client.close()
        return {name: int(counts[name]) for name in names}
