"""What rqlite and the HTTP clients say, as Fairlane's errors."""

from __future__ import annotations

import ssl

import httpx
import requests
import urllib3

from fairlane.errors import BackendFull, EventTooLarge, FairlaneError


class RqliteError(FairlaneError):
    """rqlite refused a request in a way that Fairlane has no better name for. Nothing was changed."""


def sql_error(text: str, host: str) -> FairlaneError:
    """Give an SQL error its name. There is no code, only text: SQLite's own for its result codes FULL and TOOBIG."""
    if text == "database or disk is full":
        return BackendFull("rqlite", host, text)
    if text == "string or blob too big":
        return EventTooLarge(None, None)
    return RqliteError(f"rqlite at {host} refused a statement: {text}")


def never_sent(error: requests.RequestException | httpx.RequestError) -> bool:
    """Tell whether the request was certainly not sent: connecting failed, TLS included."""
    if isinstance(error, httpx.RequestError):
        before = httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout | httpx.UnsupportedProtocol
        return isinstance(error, before)
    if isinstance(error, requests.ConnectTimeout):
        return True
    reason = getattr(error.args[0] if error.args else None, "reason", None)
    if isinstance(reason, urllib3.exceptions.SSLError):  # a TLS stream that broke may have carried the request
        return isinstance(reason.args[0] if reason.args else None, ssl.SSLCertVerificationError)
    return isinstance(reason, urllib3.exceptions.NewConnectionError)
