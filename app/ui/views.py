"""What each open page last showed, so that little is sent and an old stream never writes into a newer view.

Forgetting a page is harmless: it is then sent everything once more. Knows no gradio and no store."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from dataclasses import dataclass, field

MAX_PAGES = 200


def parse_place(place: str | None) -> tuple[str | None, int | None]:
    """(conversation id, revision) of a place; (None, None) for a new conversation."""
    identity, _, revision = (place or "").partition(":")
    return (identity or None), (int(revision) if revision.isdigit() else None)


@dataclass
class View:
    """One open page. `follower` is the token of the only stream that may write into it.

    `conversation_id` is where the page was last sent: empty for a new conversation, None when that is not known."""

    conversation_id: str | None = None
    revision: int = -1
    told: object = None
    list_key: object = None
    list_asked: object = None
    model_key: object = None
    window: int = 0
    search: str = ""
    memory_open: bool = False
    memory_key: object = None
    follower: object = None
    followed_at: float = field(default=0.0)
    lock: threading.RLock = field(default_factory=threading.RLock, repr=False)

    @property
    def place(self) -> str:
        """What the page keeps when it has been told everything."""
        return f"{self.conversation_id}:{self.revision}" if self.conversation_id else ""

    def is_at(self, conversation_id: str | None) -> bool:
        """Whether the page shows this conversation (None: a new one), as far as is known."""
        return self.conversation_id in (None, conversation_id or "")

    def meant(self, place: str | None) -> tuple[str | None, int | None]:
        """(conversation id, revision) that a message sent from this place is meant for.

        A page speaks from the place it had when it asked. Where it has been sent since then, and what it has been told
        since then, is on its way to it or was overtaken: the view knows better. A view that knows nothing, because the
        app was restarted, learns from the place."""
        with self.lock:
            conversation_id, revision = parse_place(place)
            if self.conversation_id is None:
                return conversation_id, revision
            if self.conversation_id != (conversation_id or ""):
                return parse_place(self.place)
            return conversation_id, None if revision is None else max(revision, self.revision)

    @property
    def is_followed(self) -> bool:
        """Whether a stream is alive for this page."""
        return self.follower is not None and time.monotonic() - self.followed_at < 3

    def follow(self) -> object:
        """Become the page's stream; earlier ones end at their next look."""
        self.follower = object()
        self.followed_at = time.monotonic()
        return self.follower


class Views:
    """Views by page id, the least recently used forgotten first."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._views: OrderedDict[str, View] = OrderedDict()

    def of(self, page_id: str) -> View:
        """The view of a page, new when it is not known."""
        with self._lock:
            view = self._views.setdefault(page_id, View())
            self._views.move_to_end(page_id)
            while len(self._views) > MAX_PAGES:
                self._views.popitem(last=False)
            return view
