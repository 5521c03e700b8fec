"""Turn errors of rqlite and of the HTTP clients into Fairlane's errors."""

from __future__ import annotations

import ssl

import httpx
import requests
import urllib3

from fairlane.errors import BackendFull, EventTooLarge, FairlaneError


class RqliteError(FairlaneError):
    """rqlite refused a request, and Fairlane has no special error for the reason. Nothing was changed."""


def sql_error(text: str, host: str) -> FairlaneError:
    """Return the error for an SQL error. rqlite sends no code, so the text decides: SQLite's for FULL and TOOBIG."""
    if text == "database or disk is full":
        return BackendFull("rqlite", host, text)
    if text == "string or blob too big":
        return EventTooLarge(None, None)
    return RqliteError(f"rqlite at {host} refused a statement: {text}")


def never_sent(error: requests.RequestException | httpx.RequestError) -> bool:
    """Return whether the request was certainly not sent, since the connection or its TLS handshake failed."""
    if isinstance(error, httpx.RequestError):
        before = httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout | httpx.UnsupportedProtocol
        return isinstance(error, before)
    if isinstance(error, requests.ConnectTimeout):
        return True
    reason = getattr(error.args[0] if error.args else None, "reason", None)
    if isinstance(reason, urllib3.exceptions.SSLError):  # if a TLS connection broke, the request may have been sent
        return isinstance(reason.args[0] if reason.args else None, ssl.SSLCertVerificationError)
    return isinstance(reason, urllib3.exceptions.NewConnectionError)
