"""What a page is shown, as changes: its conversation, the list, the model, memory. Remembers in the page's view what it
has been sent. Only what the person does moves a page elsewhere; news that come late never do. Knows no gradio."""

from __future__ import annotations

from typing import Any

from app.chats import Chats
from app.generation import Live
from app.opening import ModelStatus
from app.store import Conversation, Message, ReplySettings
from app.ui import render
from app.ui.memory import show_memory
from app.ui.views import View

Change = dict[str, Any]

WINDOW_MESSAGES = 30
NOTHING_LIVE: Change = {"live": [], "live_line": ""}


class Shown:
    """Changes for the pages of one app."""

    def __init__(self, chats: Chats) -> None:
        self.chats = chats

    def move(self, view: View, conversation_id: str | None, keep_window: bool = False) -> Change:
        """Everything that depends on the shown conversation, which is this one from now on (None: a new one)."""
        with view.lock:
            view.follower = None
            view.window = max(view.window, WINDOW_MESSAGES) if keep_window else WINDOW_MESSAGES
            moment = self._moment(conversation_id) if conversation_id else None
            if moment is None:  # also when it was deleted elsewhere
                view.conversation_id, view.revision = "", -1
                change = _new(self.chats.model.status)
            else:
                view.conversation_id, view.revision = moment[0].id, moment[0].revision
                change = _conversation(*moment, view.window, self.chats.model.status)
            view.told = change["title"], change["settings"]
            return change

    def stay(self, view: View, conversation_id: str | None) -> Change:
        """`move` for a page that is there already; nothing when the person has gone elsewhere meanwhile."""
        with view.lock:
            return self.move(view, conversation_id, keep_window=True) if view.is_at(conversation_id) else {}

    def news(self, view: View, conversation_id: str | None) -> Change:
        """`stay` without a title and settings that the page has: somebody may be typing other ones right now."""
        with view.lock:
            told = view.told
            change = self.stay(view, conversation_id)
            if change and told == view.told:
                del change["title"], change["settings"]
            return change

    def live(self, view: View) -> Change:
        """The answer of the shown conversation as far as it is written."""
        generation = self.chats.running(view.conversation_id) if view.conversation_id else None
        if generation is None:
            return dict(NOTHING_LIVE)
        live = generation.snapshot()
        return {"live": render.display_live(live), "live_line": render.live_line(live, self.chats.model.status)}

    def listed(self, view: View, only_news: bool = False) -> Change:
        """The conversations, narrowed by what the page searches for; those being answered carry a dot."""
        busy = self.chats.busy_ids()
        asked = (self.chats.store.num_writes, frozenset(busy), view.conversation_id, view.search)
        if only_news and asked == view.list_asked:
            return {}
        view.list_asked = asked
        entries = [(("● " if one.id in busy else "") + one.title, one.id) for one in self.chats.store.list(view.search)]
        key = (tuple(entries), view.conversation_id)
        if only_news and key == view.list_key:
            return {}
        view.list_key = key
        return {"list": entries, "chosen": view.conversation_id or None}

    def model(self, view: View, only_news: bool = False) -> Change:
        """Which model answers, and what an empty page says about it."""
        status = self.chats.model.status
        if only_news and status == view.model_key:
            return {}
        view.model_key = status
        change: Change = {
            "model_line": render.model_line(status),
            "examples": render.examples(status),
            "thinks": status.info is None or status.info.thinks,
        }
        if not view.conversation_id:
            change |= {"empty": render.empty_state(status), "meter": render.meter([], status)}
            change["samples"] = render.sees_images(status)
        return change

    def memory(self, view: View) -> Change:
        """Where memory goes, while the panel is open and when it has changed."""
        if not view.memory_open:
            return {}
        shown = show_memory(self.chats, view.conversation_id or "")
        if shown == view.memory_key:
            return {}
        view.memory_key = shown
        return {"memory": shown}

    def _moment(self, conversation_id: str) -> tuple[Conversation, Live | None, list[Message]] | None:
        """A conversation, its running answer and its messages that belong together, or None when it is gone.

        An answer may end between the reads; a page that then showed the end with the older revision would have its
        next action refused as stale."""
        while True:
            conversation = self.chats.store.find(conversation_id)
            if conversation is None:
                return None
            generation = self.chats.running(conversation_id)
            path = self.chats.path(conversation_id)
            again = self.chats.store.find(conversation_id)
            if again == conversation and generation is self.chats.running(conversation_id):
                return conversation, generation.snapshot() if generation is not None else None, path


def _new(model: ModelStatus) -> Change:
    return {
        "place": "",
        "title": "New conversation",
        "transcript": [],
        "empty": render.empty_state(model),
        "samples": render.sees_images(model),
        **NOTHING_LIVE,
        "meter": render.meter([], model),
        "answering": False,
        "older": False,
        "go_on": False,
        "versions": "",
        "settings": ReplySettings(),
        "has_conversation": False,
        "export": "",
        "follow": False,
    }


def _conversation(
    conversation: Conversation, live: Live | None, path: list[Message], window: int, model: ModelStatus
) -> Change:
    settled = [message for message in path if live is None or message.id != live.message_id]
    fork = last_fork(path)
    last = path[-1] if path else None
    return {
        "place": f"{conversation.id}:{conversation.revision}",
        "title": conversation.title,
        "transcript": render.display_path(settled[-window:]),
        "empty": None,
        "samples": False,
        "live": render.display_live(live) if live else [],
        "live_line": render.live_line(live, model) if live else "",
        "meter": render.meter(path, model),
        "answering": live is not None,
        "older": len(settled) > window,
        "go_on": live is None and last is not None and can_go_on(last),
        "versions": "" if live is not None or fork is None else f"{fork.sibling_index + 1} / {fork.num_siblings}",
        "settings": conversation.settings,
        "has_conversation": True,
        "export": render.export_links(conversation.id),
        "follow": live is not None,
    }


def last_fork(path: list[Message]) -> Message | None:
    """The last message of the path that has other versions."""
    return next((message for message in reversed(path) if message.num_siblings > 1), None)


def can_go_on(last: Message) -> bool:
    """Whether the last message of a path leaves something to continue."""
    return last.role == "user" or last.state in ("stopped", "interrupted", "error") or last.finish_reason == "length"
