"""What a claim has found."""

from __future__ import annotations

from fairlane import Lease
from fairlane.model import T


def held(lease: Lease[T] | None) -> Lease[T]:
    """Return the lease of a claim that must find a message."""
    assert lease is not None, "a claim found nothing although a message was deliverable"
    return lease
