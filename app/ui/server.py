"""Serves the page on this machine only: hosts and origins checked, nothing loaded from elsewhere, no reports.

Importing this module imports gradio; app.settings.keep_private must have run before."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import shutil
import socket
import tempfile
import threading
import webbrowser
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import gradio as gr
import uvicorn
from fastapi import FastAPI, Request, Response
from fastapi.responses import FileResponse, PlainTextResponse
from starlette.background import BackgroundTask

from app.assets import find_asset
from app.chats import Chats
from app.opening import OpeningModel
from app.refusals import Refusal
from app.store import TRANSFER_PREFIX, Store
from app.transfer import file_name
from app.ui.guard import Guard
from app.ui.handlers import Handlers
from app.ui.layout import build_parts
from app.ui.theme import build_theme
from app.ui.wiring import connect

MAX_UPLOAD = "2gb"  # an imported conversation with its state; pictures are held to less when they are checked
UPLOADS_KEPT_S = 86_400


def build_page(chats: Chats) -> gr.Blocks:
    """The page's Blocks for one app."""
    with gr.Blocks(
        title="Day Zero",
        analytics_enabled=False,
        fill_height=True,
        fill_width=True,
        delete_cache=(UPLOADS_KEPT_S, UPLOADS_KEPT_S),
    ) as page:
        connect(page, build_parts(), Handlers(chats))
    page.queue(default_concurrency_limit=None, api_open=False)
    return page


def build_app(chats: Chats, hosts: list[str] | None = None) -> FastAPI:
    """The whole web application; `hosts` are further names it may be called by."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        # Here and not after the server has returned: a terminating signal is raised again before that.
        await asyncio.to_thread(chats.close)

    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, lifespan=lifespan)
    app.add_middleware(Guard, hosts=hosts or [])
    _serve_exports(app, chats)
    return gr.mount_gradio_app(
        app,
        build_page(chats),
        path="/",
        server_name="127.0.0.1",
        app_kwargs={"docs_url": None, "redoc_url": None, "openapi_url": None},
        footer_links=[],
        run_history=False,
        allowed_paths=[str(chats.store.files.previews_dir)],
        blocked_paths=[],
        favicon_path=str(find_asset("page/icon.png")),
        show_error=False,
        max_file_size=MAX_UPLOAD,
        ssr_mode=False,
        enable_monitoring=False,
        pwa=False,
        mcp_server=False,
        theme=build_theme(),
        css_paths=[find_asset("page/page.css")],
        head=f"<script>{find_asset('page/page.js').read_text('utf-8')}</script>",
    )


def _serve_exports(app: FastAPI, chats: Chats) -> None:
    """Downloads of whole conversations; made when asked for and removed when sent."""

    def export(conversation_id: str, request: Request, state: bool = False) -> Response:
        if request.headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            return PlainTextResponse("Requests from other sites are refused.", 403)
        folder = Path(tempfile.mkdtemp(dir=chats.store.directory, prefix=TRANSFER_PREFIX))
        clean = BackgroundTask(shutil.rmtree, folder, ignore_errors=True)
        try:
            name = f"{file_name(chats.store.get(conversation_id).title)}.zip"
            chats.export(conversation_id, folder / "export.zip", state)
        except Refusal as error:
            return PlainTextResponse(str(error), 404, background=clean)
        return FileResponse(folder / "export.zip", media_type="application/zip", filename=name, background=clean)

    app.add_api_route("/export/{conversation_id}", export, methods=["GET"], response_model=None)


def serve(store: Store, model: OpeningModel, listener: socket.socket, address: str, open_browser: bool = True) -> None:
    """Serve until Ctrl-C or until the model turns out not to open."""
    chats = Chats(store, model)
    server = uvicorn.Server(
        uvicorn.Config(
            build_app(chats, _names_of(listener)),
            log_level=logging.ERROR,
            access_log=False,
            timeout_graceful_shutdown=1,
            server_header=False,
            lifespan="on",
        )
    )

    def give_up(sentence: str) -> None:
        server.should_exit = True

    model.on_failure = give_up
    if model.status.phase == "failed":
        return
    threading.Thread(target=chats.sweep, name="sweep", daemon=True).start()
    if open_browser:
        threading.Thread(target=_when_up, args=(server, lambda: webbrowser.open(address)), daemon=True).start()
    try:
        server.run(sockets=[listener])
    finally:
        chats.close()
        model.close()


def _names_of(listener: socket.socket) -> list[str]:
    """Names by which this machine may be called when a person chose to listen on the network."""
    address: Any = listener.getsockname()[0]
    if ipaddress.ip_address(address).is_loopback:
        return []
    return [socket.gethostname(), "*ip"]


def _when_up(server: uvicorn.Server, act: Callable[[], Any]) -> None:
    for _ in range(600):
        if server.started:
            act()
            return
        threading.Event().wait(0.05)
