"""Refuses requests that other web sites could make a browser send, and adds the security headers. Pure ASGI.

Table of who may ask:
  Host header     this machine's loopback names; IP literals too when a person listens on the network
  Origin          absent, or the same host and port as the Host header
  Sec-Fetch-Site  absent, none or same-origin; another site may only navigate to the page"""

from __future__ import annotations

import ipaddress
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from typing import Any
from urllib.parse import urlsplit

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

LOOPBACK_NAMES = ("127.0.0.1", "localhost", "::1")

CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'self'",
        "img-src 'self' data: blob:",
        "media-src 'self' data: blob:",
        "font-src 'self' data:",
        "connect-src 'self'",
        # Gradio compiles its templates in the page; nothing but this server can supply a script.
        "script-src 'self' 'unsafe-inline' 'unsafe-eval'",
        "style-src 'self' 'unsafe-inline'",
        "worker-src 'self' blob:",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "frame-src 'none'",
        "object-src 'none'",
        "base-uri 'self'",
    )
)

_HEADERS = [
    (b"content-security-policy", CONTENT_SECURITY_POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
]
_OURS = {name for name, _ in _HEADERS}


class Guard:
    """ASGI middleware; `hosts` adds names, and `*ip` allows any IP literal (a rebinding attack needs a name)."""

    def __init__(self, app: Any, hosts: Sequence[str] = ()) -> None:
        self.app = app
        self.any_ip = "*ip" in hosts
        self.names = {*LOOPBACK_NAMES, *(host.lower() for host in hosts if host != "*ip")}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve, or refuse with a plain sentence."""
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        headers = {name.lower(): value.decode("latin-1") for name, value in scope["headers"]}
        refusal = self._refusal(scope, headers)
        if refusal is None:
            await self.app(scope, receive, _with_headers(send))
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
        else:
            await _refuse(send, *refusal)

    def _refusal(self, scope: Scope, headers: dict[bytes, str]) -> tuple[int, str] | None:
        host = headers.get(b"host", "")
        if not self._is_ours(host):
            return 400, "This address is not served here."
        origin = headers.get(b"origin")
        if origin is not None and urlsplit(origin).netloc.lower() != host.lower():
            return 403, "Requests from other sites are refused."
        navigates = scope.get("method") == "GET" and headers.get(b"sec-fetch-mode") == "navigate"
        if headers.get(b"sec-fetch-site", "none") not in ("none", "same-origin") and not navigates:
            return 403, "Requests from other sites are refused."
        return None

    def _is_ours(self, host: str) -> bool:
        try:
            name = (urlsplit(f"//{host}").hostname or "").lower()
        except ValueError:
            return False
        if name in self.names:
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return self.any_ip


def _with_headers(send: Send) -> Send:
    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            kept = [(name, value) for name, value in message.get("headers", []) if name.lower() not in _OURS]
            message = {**message, "headers": kept + _HEADERS}
        await send(message)

    return send_with_headers


async def _refuse(send: Send, status: int, sentence: str) -> None:
    body = sentence.encode()
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", str(len(body)).encode()), *_HEADERS]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
