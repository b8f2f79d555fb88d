"""`python -m app`: hands the command line to app.cli."""

from __future__ import annotations

import sys

from app.cli import main

__all__ = ["main"]

if __name__ == "__main__":
    sys.exit(main())
