"""What errors of botocore mean, in Fairlane's words; by the codes that SQS answers with."""

from __future__ import annotations

from botocore import exceptions
from botocore.parsers import ResponseParserError

from fairlane.backends.shared.retry import Pauses, Unanswered
from fairlane.errors import AuthenticationFailed, FairlaneError

MISSING = frozenset({"NonExistentQueue", "QueueDoesNotExist"})
LOST = frozenset({"ReceiptHandleIsInvalid", "InvalidParameterValue", "MessageNotInflight", "InvalidIdFormat"})
REFUSED = frozenset({"InvalidParameterValue", "InvalidAttributeValue", "InvalidMessageContents", "ValidationError"})
"""What SQS (the first) or ElasticMQ says of a message that is too large, among other things."""

_CREDENTIALS = frozenset(
    {"InvalidClientTokenId", "UnrecognizedClientException", "SignatureDoesNotMatch", "InvalidAccessKeyId",
     "IncompleteSignature", "MissingAuthenticationToken", "MissingAuthenticationTokenException", "InvalidSecurity",
     "InvalidSignatureException", "IncompleteSignatureException", "ExpiredToken", "ExpiredTokenException",
     "TokenRefreshRequired", "NotAuthorized", "OptInRequired"}
)  # fmt: skip
_RIGHTS = frozenset({"AccessDenied", "AccessDeniedException"})
_BUSY = frozenset({"Throttling", "ThrottlingException", "RequestThrottled", "RequestThrottledException", "OverLimit",
                   "TooManyRequestsException", "SlowDown", "KmsThrottled", "QueueDeletedRecently"})  # fmt: skip
_NO_CREDENTIALS = (
    exceptions.NoCredentialsError,
    exceptions.PartialCredentialsError,
    exceptions.CredentialRetrievalError,
    exceptions.TokenRetrievalError,
)


RETRY_SECONDS = 0.6
"""Seconds for which a request is sent again that got no answer, or that SQS was too busy for."""

_PAUSES = Pauses(0.1, 0.4, growth=4.0, least=0.8)

_NOT_SENT = (
    exceptions.EndpointConnectionError,
    exceptions.ConnectTimeoutError,
    exceptions.ProxyConnectionError,
    exceptions.SSLError,
)
"""The connection failed before anything was sent."""


def code_of(error: BaseException) -> str:
    """Return the code of an error that SQS answered with, without what some servers put before it; "" if none."""
    response = getattr(error, "response", None)
    if not isinstance(error, exceptions.ClientError) or not isinstance(response, dict):
        return ""
    code = str(response.get("Error", {}).get("Code", ""))
    return code.rpartition("#")[2].rpartition(".")[2]


def status_of(error: BaseException) -> int:
    """Return the HTTP status of an error that the server answered with; 0 if there is none."""
    response = getattr(error, "response", None) or {}
    found = response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0) if isinstance(response, dict) else 0
    return int(found)


def translate(error: Exception, host: str) -> FairlaneError | Unanswered | None:
    """Turn an error of botocore into one of Fairlane's; None for those that Fairlane, or a program, knows better."""
    code = code_of(error)
    if code in _CREDENTIALS:
        return AuthenticationFailed("sqs", host)
    if code in _RIGHTS:
        right = getattr(error, "operation_name", "do this")
        return AuthenticationFailed("sqs", host, f"the user may not sqs:{right}, or not use the queue's key")
    if isinstance(error, _NO_CREDENTIALS):
        return AuthenticationFailed("sqs", host, "no credentials were found: put them into the URL, or set up AWS's")
    if code in _BUSY:
        return _unanswered(host, f"it is too busy ({code})", uncertain=False)
    if code and status_of(error) >= 500:
        return _unanswered(host, f"it answered {status_of(error)} ({code})")
    if isinstance(error, _NOT_SENT):
        return _unanswered(host, "the connection failed", uncertain=False)
    if isinstance(error, exceptions.ReadTimeoutError | TimeoutError):
        return _unanswered(host, "it did not answer in time")
    if isinstance(error, exceptions.HTTPClientError | exceptions.ConnectionError | ConnectionError):
        return _unanswered(host, "the connection broke before it answered")
    if isinstance(error, ResponseParserError):
        return _unanswered(host, "it does not answer as SQS does")
    return None


def _unanswered(host: str, reason: str, *, uncertain: bool = True) -> Unanswered:
    return Unanswered("sqs", host, reason, uncertain=uncertain, seconds=RETRY_SECONDS, pauses=_PAUSES)
