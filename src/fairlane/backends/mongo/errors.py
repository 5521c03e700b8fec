"""Turn errors of pymongo into Fairlane's errors, by code."""

from __future__ import annotations

from socket import gaierror

from pymongo import errors

from fairlane.backends.shared.retry import Pauses, Unanswered
from fairlane.errors import (
    AuthenticationFailed,
    BackendFull,
    ConfigurationError,
    EventTooLarge,
    FairlaneError,
)

_CREDENTIALS = (18, 8000)  # AuthenticationFailed; AtlasError, which hosted servers send for wrong credentials
_NO_CODE = "Authentication failed"  # the text of other servers with MongoDB's protocol, which send no code
_RIGHTS = (13,)  # Unauthorized
_FULL = (14031,)  # OutOfDiskSpace
_TOO_LARGE = (10334, 17419, 17420)  # BSONObjectTooLarge, and as the result of an update
_UNSURE = (50, 64, 100, 262)  # MaxTimeMSExpired, WriteConcernFailed, UnsatisfiableWriteConcern, ExceededTimeLimit
_NOT_PRIMARY = (10107, 13435, 13436)  # NotWritablePrimary, NotPrimaryNoSecondaryOk, NotPrimaryOrSecondary: refused

_NO_PAUSES = Pauses(0.0, 0.0)  # pymongo itself repeats requests if that is safe


def translate(error: Exception, host: str, doing: str = "do this") -> FairlaneError | Unanswered | None:
    """Return Fairlane's error for an error of pymongo, or None if there is none.

    Args:
        host: the host of the server, for the message.
        doing: the action for which the user may lack a right, for the message.
    """
    if isinstance(error, errors.DocumentTooLarge):
        return EventTooLarge(None, None)
    code = getattr(error, "code", None)
    if code in _CREDENTIALS or (code is None and _NO_CODE in str(error)):
        return AuthenticationFailed("mongo", host)
    if code in _RIGHTS:
        return AuthenticationFailed("mongo", host, f"the user may not {doing}: the user needs the role readWrite")
    if code in _FULL:
        return BackendFull("mongo", host, "the server is out of disk space")
    if code in _TOO_LARGE:
        return EventTooLarge(None, None)
    if isinstance(error, errors.WaitQueueTimeoutError):
        return _unanswered(host, "all connections of the client were in use: raise maxPoolSize", uncertain=False)
    if isinstance(error, errors.ConnectionFailure | errors.WriteConcernError | errors.ExecutionTimeout):
        return _unanswered(host, _reason(error), uncertain=not _never_sent(error))
    if code in _UNSURE:
        return _unanswered(host, _reason(error))
    if isinstance(error, errors.InvalidOperation):  # closed between two requests of one call, or by the application
        return _unanswered(host, "its client was closed", uncertain=False)
    if isinstance(error, errors.ConfigurationError):
        if error.__cause__ is not None:  # the first request of a mongodb+srv:// URL looks up its hosts
            return _unanswered(host, f"its name cannot be resolved: {_reason(error)}", uncertain=False)
        return ConfigurationError(f"MongoDB at {host} cannot be used with these settings: {error}")
    return None


def _unanswered(host: str, reason: str, *, uncertain: bool = True) -> Unanswered:
    return Unanswered("mongo", host, reason, uncertain=uncertain, seconds=0.0, pauses=_NO_PAUSES)


def _never_sent(error: Exception) -> bool:
    """Return whether the request was certainly not carried out: it was not sent, or the server refused it."""
    if isinstance(error, errors.ServerSelectionTimeoutError):
        return True
    if isinstance(error, errors.NotPrimaryError) and isinstance(error.details, dict):
        return error.details.get("code") in _NOT_PRIMARY
    return isinstance(error.__cause__, ConnectionRefusedError | gaierror)


def _reason(error: Exception) -> str:
    """Return the first sentence of an error. pymongo adds its settings and its view of the cluster."""
    text = str(error)
    for mark in (" (configured timeouts", ", Timeout: ", ", full error", ", Topology Description"):
        text = text.partition(mark)[0]
    return text[:200] or type(error).__name__
