"""What pymongo's errors mean, in Fairlane's words."""

from __future__ import annotations

from pymongo import errors

from fairlane.errors import (
    AuthenticationFailed,
    BackendFull,
    BackendUnavailable,
    ConfigurationError,
    EventTooLarge,
    FairlaneError,
)

_CREDENTIALS = (18, 8000)  # AuthenticationFailed; AtlasError, which hosted servers give for a bad login
_NO_CODE = "Authentication failed"  # servers that only speak the protocol leave the code out
_RIGHTS = (13,)  # Unauthorized
_FULL = (14031,)  # OutOfDiskSpace
_TOO_LARGE = (10334, 17419, 17420)  # BSONObjectTooLarge, and as the result of an update
_UNSURE = (50, 64, 100, 262)  # MaxTimeMSExpired, WriteConcernFailed, UnsatisfiableWriteConcern, ExceededTimeLimit


def translate(error: Exception, host: str) -> FairlaneError | None:
    """Turn an error of pymongo into one of Fairlane's; None for those that Fairlane has no name for."""
    if isinstance(error, errors.DocumentTooLarge):
        return EventTooLarge(None, None)
    code = getattr(error, "code", None)
    if code in _CREDENTIALS or (code is None and _NO_CODE in str(error)):
        return AuthenticationFailed("mongo", host)
    if code in _RIGHTS:
        return AuthenticationFailed("mongo", host, "the user lacks a right that this call needs")
    if code in _FULL:
        return BackendFull("mongo", host, "the server is out of disk space")
    if code in _TOO_LARGE:
        return EventTooLarge(None, None)
    if isinstance(error, errors.ConnectionFailure | errors.WriteConcernError | errors.WaitQueueTimeoutError):
        return BackendUnavailable("mongo", host, _reason(error))
    if code in _UNSURE or isinstance(error, errors.ExecutionTimeout):
        return BackendUnavailable("mongo", host, _reason(error))
    if isinstance(error, errors.InvalidOperation):  # closed between two requests of one call, or by the application
        return BackendUnavailable("mongo", host, "its client was closed")
    if isinstance(error, errors.ConfigurationError):
        if error.__cause__ is not None:  # of a mongodb+srv:// URL: the first request looks its hosts up
            return BackendUnavailable("mongo", host, f"its name cannot be resolved: {_reason(error)}")
        return ConfigurationError(f"MongoDB at {host} cannot be used like this: {error}")
    return None


def _reason(error: Exception) -> str:
    """Return the first sentence; pymongo goes on with its settings and its view of the cluster."""
    text = str(error)
    for mark in (" (configured timeouts", ", Timeout: ", ", full error", ", Topology Description"):
        text = text.partition(mark)[0]
    return text[:200] or type(error).__name__
