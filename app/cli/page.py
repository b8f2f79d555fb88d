"""Without a command: opens the page. Binds the port and the data directory first, so that refusals come at once."""

from __future__ import annotations

import argparse
import contextlib
import shutil
import socket
import sys

from app import models, settings
from app.cli.options import (
    add_data_option,
    add_engine_options,
    add_model_option,
    add_state_options,
    engine_opener,
    engine_settings,
    port_number,
)
from app.refusals import Refusal


def add_options(parser: argparse.ArgumentParser) -> None:
    """Options of the page."""
    add_model_option(parser)
    parser.add_argument("--port", type=port_number, help=f"default {settings.DEFAULT_PORT}, or the next free one")
    parser.add_argument("--host", default=settings.DEFAULT_HOST, help="address to listen on (default: this machine)")
    parser.add_argument("--no-browser", action="store_true", help="do not open a browser window")
    add_data_option(parser)
    add_engine_options(parser)
    add_state_options(parser)


def run(options: argparse.Namespace) -> int:
    """Serve the page until Ctrl-C; 2 when the model cannot be opened."""
    data_dir = settings.data_dir(options.data_dir)
    wishes = engine_settings(options, data_dir)
    model_path = models.find_model(options.model)
    listener = bind(options.host, options.port)
    from app.opening import OpeningModel
    from app.store import Store

    with contextlib.closing(listener), contextlib.closing(Store(data_dir)) as store:
        # The engine (torch) and the page (gradio) are imported at the same time, each in its own thread.
        model = OpeningModel(model_path.name, engine_opener(model_path, wishes)).start()
        uploads = store.directory / "uploads"
        shutil.rmtree(uploads, ignore_errors=True)  # messages keep their own copies
        settings.keep_private(uploads)
        from app.ui.server import serve

        address = page_address(options.host, listener)
        print(f"Opening {address}", flush=True)
        serve(store, model, listener, address, open_browser=not options.no_browser)
        if model.status.phase == "failed":
            raise Refusal(model.status.error)
    return 0


def bind(host: str, port: int | None) -> socket.socket:
    """A listening socket; a port that a person names is used or refused, the usual one may move on."""
    wanted = [port] if port is not None else range(settings.DEFAULT_PORT, settings.DEFAULT_PORT + settings.PORTS_TO_TRY)
    try:
        family, _, _, _, _ = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0]
    except OSError:
        raise Refusal(f"'{host}' is not an address of this machine.") from None
    error: OSError | None = None
    for number in wanted:
        listener = socket.socket(family, socket.SOCK_STREAM)
        if sys.platform != "win32":
            # Elsewhere this only skips the wait after a restart; on Windows it would share a port in use.
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, number))
            listener.listen(128)
            return listener
        except OSError as caught:
            listener.close()
            error = caught
    named = f"Port {port}" if port is not None else f"Every port from {wanted[0]} to {wanted[-1]}"
    if isinstance(error, PermissionError):
        raise Refusal(f"{named} may not be used by this account; choose another with --port.")
    if error is not None and error.errno in (99, 10049):
        raise Refusal(f"'{host}' is not an address of this machine.")
    raise Refusal(f"{named} is in use; choose another with --port.")


def page_address(host: str, listener: socket.socket) -> str:
    """The address to type into a browser on this machine."""
    port = listener.getsockname()[1]
    shown = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)
    return f"http://{shown}:{port}"
