"""Turn errors of botocore into Fairlane's errors, by the error codes of SQS."""

from __future__ import annotations

from botocore import exceptions
from botocore.parsers import ResponseParserError

from fairlane.backends.shared.retry import Pauses, Unanswered
from fairlane.errors import AuthenticationFailed, FairlaneError

MISSING = frozenset({"NonExistentQueue", "QueueDoesNotExist"})
LOST = frozenset({"ReceiptHandleIsInvalid", "InvalidParameterValue", "MessageNotInflight", "InvalidIdFormat"})
REFUSED = frozenset({"InvalidParameterValue", "InvalidAttributeValue", "InvalidMessageContents", "ValidationError"})
"""Codes of SQS (the first) and ElasticMQ for a message that is too large. They have other meanings too."""

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
"""Seconds for which a request is repeated if there is no answer or SQS is too busy."""

_PAUSES = Pauses(0.1, 0.4, growth=4.0, least=0.8)

_NOT_SENT = (
    exceptions.EndpointConnectionError,
    exceptions.ConnectTimeoutError,
    exceptions.ProxyConnectionError,
    exceptions.SSLError,
)
"""Errors of connections that failed before anything was sent."""


def code_of(error: BaseException) -> str:
    """Return the code of an error that SQS returned, without a prefix that some servers add; "" if there is none."""
    response = getattr(error, "response", None)
    if not isinstance(error, exceptions.ClientError) or not isinstance(response, dict):
        return ""
    code = str(response.get("Error", {}).get("Code", ""))
    return code.rpartition("#")[2].rpartition(".")[2]


def status_of(error: BaseException) -> int:
    """Return the HTTP status of an error that the server returned; 0 if there is none."""
    response = getattr(error, "response", None) or {}
    found = response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0) if isinstance(response, dict) else 0
    return int(found)


def translate(error: Exception, host: str) -> FairlaneError | Unanswered | None:
    """Turn an error of botocore into an error of Fairlane; return None for errors that the programs handle."""
    code = code_of(error)
    if code in _CREDENTIALS:
        return AuthenticationFailed("sqs", host)
    if code in _RIGHTS:
        right = getattr(error, "operation_name", "*")
        return AuthenticationFailed("sqs", host, f"the user lacks the right sqs:{right}, or a right on the queue's key")
    if isinstance(error, _NO_CREDENTIALS):
        return AuthenticationFailed("sqs", host, "no credentials were found: put them into the URL or configure AWS's")
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
