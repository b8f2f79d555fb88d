"""The command line. Imports neither torch nor gradio until a command needs them."""

from app.cli.main import main

__all__ = ["main"]
