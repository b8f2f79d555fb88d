"""What the page does when a person acts: plain functions from inputs to a dictionary of changes. Knows no gradio.

A page names its conversation as `place`, the text "id:revision", which it keeps itself and so survives a restart of
the app. Keys of a change are the names of the page's parts; parts that are not named stay as they are."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from app.chats import Chats
from app.generation import Live
from app.images import Picture, read_picture
from app.refusals import ChangedElsewhere, Refusal
from app.store import Conversation, Message, ReplySettings
from app.ui import render
from app.ui.memory import show_memory
from app.ui.views import View, Views, parse_place

Change = dict[str, Any]

WINDOW_MESSAGES = 30
POLL_S = 0.08


class Handlers:
    """All actions of the page, bound to one app's chats."""

    def __init__(self, chats: Chats) -> None:
        self.chats = chats
        self.views = Views()

    # arriving and moving

    def arrive(self, page_id: str, place: str | None) -> Change:
        """A page was opened or reloaded; `place` is what its tab remembered."""
        conversation_id, _ = parse_place(place)
        if conversation_id is not None and self.chats.store.find(conversation_id) is None:
            conversation_id = None
        view = self.views.of(page_id)
        view.search, view.memory_open = "", False
        return {**self._show(view, conversation_id), **self._list(view), **self._model(view), "arrived": True}

    def select(self, page_id: str, conversation_id: str | None) -> Change:
        """Show another conversation; one that is being answered goes on without being watched."""
        view = self.views.of(page_id)
        if conversation_id is not None and self.chats.store.find(conversation_id) is None:
            return {**self._show(view, None), **self._list(view), "notice": "This conversation no longer exists."}
        return {**self._show(view, conversation_id), **self._list(view)}

    def new(self, page_id: str) -> Change:
        """An empty view; a conversation is only stored with its first message."""
        return self.select(page_id, None)

    def search(self, page_id: str, text: str) -> Change:
        """Narrow the list to conversations whose title or messages hold every word."""
        view = self.views.of(page_id)
        view.search = text or ""
        return self._list(view)

    def older(self, page_id: str, place: str | None) -> Change:
        """Show more of the beginning."""
        view = self.views.of(page_id)
        view.window += WINDOW_MESSAGES
        return self._show(view, parse_place(place)[0], keep_window=True)

    # writing

    def send(self, page_id: str, place: str | None, composed: dict[str, Any] | None, settings: ReplySettings) -> Change:
        """Store the message and start the answer; on a refusal the composed text stays where it is."""
        view = self.views.of(page_id)
        conversation_id, revision = parse_place(place)
        composed = composed or {}
        try:
            pictures = read_uploads(composed.get("files") or [])
            generation = self.chats.send(
                conversation_id,
                composed.get("text") or "",
                pictures,
                revision,
                settings,
            )
        except Refusal as error:
            return self._refused(view, conversation_id, error)
        return {**self._show(view, generation.conversation_id), **self._list(view), "composer": None}

    def regenerate(self, page_id: str, place: str | None, entry_index: int | None = None) -> Change:
        """Another version of the answer shown as this entry of the transcript (None: the last one)."""

        def act(identity: str, revision: int | None) -> None:
            self.chats.regenerate(identity, self._message_at(page_id, identity, entry_index), revision)

        return self._act(page_id, place, act)

    def edit(self, page_id: str, place: str | None, entry_index: int, text: str) -> Change:
        """Another version of the person's message shown as this entry of the transcript."""

        def act(identity: str, revision: int | None) -> None:
            message_id = self._message_at(page_id, identity, entry_index)
            assert message_id is not None
            self.chats.edit(identity, message_id, render.unguard(text), revision)

        return self._act(page_id, place, act)

    def _message_at(self, page_id: str, conversation_id: str, entry_index: int | None) -> int | None:
        if entry_index is None:
            return None
        window = max(self.views.of(page_id).window, WINDOW_MESSAGES)
        entries = render.display_path(self.chats.path(conversation_id)[-window:])
        if not 0 <= entry_index < len(entries):
            raise Refusal("This message is no longer shown; please try again.")
        return int(entries[entry_index]["id"])

    def go_on(self, page_id: str, place: str | None) -> Change:
        """Continue an answer that ended early."""
        return self._act(page_id, place, self.chats.go_on)

    def show_version(self, page_id: str, place: str | None, step: int) -> Change:
        """Show the version before or after at the last fork of the path."""

        def move(identity: str, revision: int | None) -> None:
            fork = last_fork(self.chats.path(identity))
            if fork is not None:
                versions = self.chats.store.siblings(fork.id)
                target = versions[(fork.sibling_index + step) % len(versions)]
                self.chats.store.show_branch(identity, target, revision)

        return self._act(page_id, place, move)

    def stop(self, page_id: str, place: str | None) -> Change:
        """Stop the answer of the shown conversation at once."""
        conversation_id, _ = parse_place(place)
        view = self.views.of(page_id)
        if conversation_id is not None:
            self.chats.stop(conversation_id)
        # The stream stays: its last change comes after any that is still on the way to the page.
        follower = view.follower
        change = {**self._show(view, conversation_id, keep_window=True), **self._list(view)}
        view.follower = follower
        return change

    # keeping order

    def rename(self, page_id: str, place: str | None, title: str) -> Change:
        """Give the shown conversation another title."""
        return self._act(
            page_id, place, lambda identity, revision: self.chats.store.rename(identity, title or "", revision)
        )

    def delete(self, page_id: str, place: str | None) -> Change:
        """Delete the shown conversation, after the page has asked."""
        view = self.views.of(page_id)
        conversation_id, _ = parse_place(place)
        try:
            if conversation_id is not None:
                self.chats.delete(conversation_id)
        except Refusal as error:
            return self._refused(view, conversation_id, error)
        return {**self._show(view, None), **self._list(view)}

    def configure(self, page_id: str, place: str | None, settings: ReplySettings) -> Change:
        """Store the settings of the shown conversation; those of a new one travel with its first message."""
        conversation_id, revision = parse_place(place)
        if conversation_id is None:
            return {}
        view = self.views.of(page_id)
        try:
            conversation = self.chats.store.get(conversation_id)
            if conversation.settings == settings:
                return {}
            conversation = self.chats.store.configure(conversation_id, settings, revision)
        except Refusal as error:
            return self._refused(view, conversation_id, error)
        if view.conversation_id == conversation_id:
            view.revision = conversation.revision
        return {"place": f"{conversation_id}:{conversation.revision}"}

    def import_(self, page_id: str, path: str | None) -> Change:
        """Take over an exported conversation and show it; what was uploaded is not kept."""
        view = self.views.of(page_id)
        if not path:
            return {}
        try:
            conversation = self.chats.import_(Path(path))
        except Refusal as error:
            return {"notice": str(error)}
        finally:
            Path(path).unlink(missing_ok=True)
        return {**self._show(view, conversation.id), **self._list(view)}

    def toggle_memory(self, page_id: str) -> Change:
        """Show or hide where memory goes."""
        view = self.views.of(page_id)
        view.memory_open = not view.memory_open
        view.memory_key = None
        return self._memory(view) if view.memory_open else {"memory": ""}

    def _memory(self, view: View) -> Change:
        if not view.memory_open:
            return {}
        shown = show_memory(self.chats, view.conversation_id)
        if shown == view.memory_key:
            return {}
        view.memory_key = shown
        return {"memory": shown}

    # watching

    def pulse(self, page_id: str, place: str | None) -> Change:
        """Asked about once a second: what changed elsewhere, and `follow` when an answer is not being watched."""
        self.chats.save_leftovers()
        view = self.views.of(page_id)
        change = {**self._list(view, only_news=True), **self._model(view, only_news=True), **self._memory(view)}
        conversation_id, revision = parse_place(place)
        if view.is_followed:
            return change
        if conversation_id is not None:
            conversation = self.chats.store.find(conversation_id)
            if conversation is None:
                return {**change, **self._show(view, None), "notice": "This conversation was deleted elsewhere."}
            if self.chats.running(conversation_id) is not None:
                return {**change, "follow": True}
            if view.conversation_id != conversation_id or {view.revision, revision} != {conversation.revision}:
                change |= self._show(view, conversation_id, keep_window=view.conversation_id == conversation_id)
        elif view.conversation_id:
            change |= self._show(view, None)
        return change

    def follow(self, page_id: str, place: str | None) -> Iterator[Change]:
        """Live changes of the shown conversation until its answer ends or the page looks elsewhere."""
        conversation_id, _ = parse_place(place)
        view = self.views.of(page_id)
        generation = self.chats.running(conversation_id) if conversation_id else None
        if generation is None or conversation_id is None:
            if conversation_id is not None and view.conversation_id == conversation_id:
                yield self._show(view, conversation_id, keep_window=True)
            return
        if view.conversation_id != conversation_id:
            yield self._show(view, conversation_id)
        token = view.follow()
        version = -1
        shown: Change = {}
        while view.follower is token and view.conversation_id == conversation_id:
            view.followed_at = time.monotonic()
            if generation.finished:
                view.follower = None
                yield {**self._show(view, conversation_id, keep_window=True), **self._list(view)}
                return
            live = generation.wait(version, POLL_S)
            if live.version == version and live.phase != "model":
                continue
            version = live.version
            change = self._live_now(view)
            if change != shown and not generation.finished:
                shown = change
                yield change
                _rest(generation)
        # A change that was on the way may arrive after the page has moved on; this one comes last and is right.
        yield self._live_now(view)

    def _live_now(self, view: View) -> Change:
        generation = self.chats.running(view.conversation_id)
        if generation is None:
            return {"live": [], "live_line": ""}
        live = generation.snapshot()
        return {"live": render.display_live(live), "live_line": render.live_line(live, self.chats.model.status)}

    # parts of the page

    def _act(self, page_id: str, place: str | None, action: Any) -> Change:
        view = self.views.of(page_id)
        conversation_id, revision = parse_place(place)
        if conversation_id is None:
            return {"notice": "Open a conversation first."}
        try:
            action(conversation_id, revision)
        except Refusal as error:
            return self._refused(view, conversation_id, error)
        return {**self._show(view, conversation_id, keep_window=True), **self._list(view)}

    def _refused(self, view: View, conversation_id: str | None, error: Refusal) -> Change:
        change: Change = {"notice": str(error)}
        if isinstance(error, ChangedElsewhere):
            change |= self._show(view, conversation_id)
        return change

    def _show(self, view: View, conversation_id: str | None, keep_window: bool = False) -> Change:
        """Everything that depends on the shown conversation."""
        model = self.chats.model.status
        view.follower = None
        view.window = max(view.window, WINDOW_MESSAGES) if keep_window else WINDOW_MESSAGES
        moment = self._moment(conversation_id) if conversation_id else None
        if moment is None:
            view.conversation_id, view.revision = "", -1
            return {
                "place": "",
                "title": "New conversation",
                "transcript": [],
                "empty": render.empty_state(model),
                "samples": render.sees_images(model),
                "live": [],
                "live_line": "",
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
        conversation, live, path = moment
        view.conversation_id, view.revision = conversation.id, conversation.revision
        settled = [message for message in path if live is None or message.id != live.message_id]
        fork = last_fork(path)
        last = path[-1] if path else None
        return {
            "place": f"{conversation.id}:{conversation.revision}",
            "title": conversation.title,
            "transcript": render.display_path(settled[-view.window :]),
            "empty": None,
            "samples": False,
            "live": render.display_live(live) if live else [],
            "live_line": render.live_line(live, model) if live else "",
            "meter": render.meter(path, model),
            "answering": live is not None,
            "older": len(settled) > view.window,
            "go_on": live is None and last is not None and can_go_on(last),
            "versions": "" if live is not None or fork is None else f"{fork.sibling_index + 1} / {fork.num_siblings}",
            "settings": conversation.settings,
            "has_conversation": True,
            "export": render.export_links(conversation.id),
            "follow": live is not None,
        }

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

    def _list(self, view: View, only_news: bool = False) -> Change:
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

    def _model(self, view: View, only_news: bool = False) -> Change:
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


def last_fork(path: list[Message]) -> Message | None:
    """The last message of the path that has other versions."""
    return next((message for message in reversed(path) if message.num_siblings > 1), None)


def can_go_on(last: Message) -> bool:
    """Whether the last message of a path leaves something to continue."""
    return last.role == "user" or last.state in ("stopped", "interrupted", "error") or last.finish_reason == "length"


def read_uploads(files: list[Any]) -> list[Picture]:
    """Uploaded files as checked pictures; a Refusal names the first that is none."""
    return [read_picture(Path(file)) for file in files]


def _rest(generation: Any) -> None:
    """At most ten updates a second, yet a stop is noticed at once."""
    generation.stop_asked.wait(POLL_S)
