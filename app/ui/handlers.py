"""What the page does when a person acts: plain functions from inputs to a dictionary of changes. Knows no gradio.

A page names its conversation as `place`, the text "id:revision", which it keeps itself and so survives a restart of
the app. Keys of a change are the names of the page's parts; parts that are not named stay as they are."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from app.chats import Chats
from app.images import Picture, read_picture
from app.refusals import ChangedElsewhere, Refusal
from app.store import ReplySettings
from app.ui import render
from app.ui.shown import NOTHING_LIVE, WINDOW_MESSAGES, Change, Shown, last_fork
from app.ui.views import View, Views, parse_place

POLL_S = 0.08


class Handlers:
    """All actions of the page, bound to one app's chats."""

    def __init__(self, chats: Chats) -> None:
        self.chats = chats
        self.shown = Shown(chats)
        self.views = Views()

    # arriving and moving

    def arrive(self, page_id: str, place: str | None) -> Change:
        """A page was opened or reloaded; `place` is what its tab remembered."""
        conversation_id, _ = parse_place(place)
        if conversation_id is not None and self.chats.store.find(conversation_id) is None:
            conversation_id = None
        view = self.views.of(page_id)
        view.search, view.memory_open = "", False
        change = {**self.shown.move(view, conversation_id), **self.shown.listed(view), **self.shown.model(view)}
        return {**change, "arrived": True}

    def select(self, page_id: str, conversation_id: str | None) -> Change:
        """Show another conversation; one that is being answered goes on without being watched."""
        view = self.views.of(page_id)
        if conversation_id is not None and self.chats.store.find(conversation_id) is None:
            gone = {**self.shown.move(view, None), **self.shown.listed(view)}
            return {**gone, "notice": "This conversation no longer exists."}
        return {**self.shown.move(view, conversation_id), **self.shown.listed(view)}

    def new(self, page_id: str) -> Change:
        """An empty view; a conversation is only stored with its first message."""
        return self.select(page_id, None)

    def search(self, page_id: str, text: str) -> Change:
        """Narrow the list to conversations whose title or messages hold every word."""
        view = self.views.of(page_id)
        view.search = text or ""
        return self.shown.listed(view)

    def older(self, page_id: str, place: str | None) -> Change:
        """Show more of the beginning."""
        view = self.views.of(page_id)
        view.window += WINDOW_MESSAGES
        return self.shown.stay(view, parse_place(place)[0])

    # writing

    def send(self, page_id: str, place: str | None, composed: dict[str, Any] | None, settings: ReplySettings) -> Change:
        """Store the message and start the answer; `taken` says that the composed text is stored."""
        view = self.views.of(page_id)
        conversation_id, revision = view.meant(place)
        here = view.conversation_id
        composed = composed or {}
        is_old = (
            conversation_id != parse_place(place)[0]
        )  # the page still showed another conversation, and its settings
        try:
            pictures = read_uploads(composed.get("files") or [])
            text = composed.get("text") or ""
            generation = self.chats.send(conversation_id, text, pictures, revision, None if is_old else settings)
        except Refusal as error:
            return self._refused(view, conversation_id, error)
        with view.lock:
            moved = view.conversation_id != here  # by the person, while the pictures were read
            shown = {} if moved else self.shown.move(view, generation.conversation_id)
        return {**shown, **self.shown.listed(view), "taken": True}

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
        with view.lock:
            # The stream stays: its last change comes after any that is still on the way to the page.
            follower = view.follower
            change = self.shown.news(view, conversation_id)
            view.follower = follower
        return {**change, **self.shown.listed(view)}

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
        with view.lock:
            change = self.shown.move(view, None) if view.is_at(conversation_id) else {}
        return {**change, **self.shown.listed(view)}

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
        with view.lock:
            if not view.is_at(conversation_id):
                return {}
            if view.conversation_id == conversation_id:
                view.revision, view.told = conversation.revision, (conversation.title, settings)
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
        return {**self.shown.move(view, conversation.id), **self.shown.listed(view)}

    def toggle_memory(self, page_id: str) -> Change:
        """Show or hide where memory goes."""
        view = self.views.of(page_id)
        view.memory_open = not view.memory_open
        view.memory_key = None
        return self.shown.memory(view) if view.memory_open else {"memory": ""}

    # watching

    def pulse(self, page_id: str, place: str | None) -> Change:
        """Asked about once a second: what changed elsewhere, and `follow` when an answer is not being watched."""
        self.chats.save_leftovers()
        view = self.views.of(page_id)
        conversation_id, revision = parse_place(place)
        with view.lock:
            if not view.is_at(conversation_id):
                # The answer to the person's last move is still on its way to the page, or was lost.
                return {**self.shown.move(view, view.conversation_id, keep_window=True), **self.shown.listed(view)}
            change = {**self.shown.listed(view, True), **self.shown.model(view, True), **self.shown.memory(view)}
            if view.is_followed or conversation_id is None:
                return change
            conversation = self.chats.store.find(conversation_id)
            if conversation is None:
                change |= self.shown.move(view, None)
                view.conversation_id = None  # not the person's move: a message on its way is refused, not put elsewhere
                return {**change, "notice": "This conversation was deleted elsewhere."}
            if self.chats.running(conversation_id) is not None:
                return {**change, "follow": True}
            if {view.revision, revision} != {conversation.revision}:
                change |= self.shown.news(view, conversation_id)
            return change

    def follow(self, page_id: str, place: str | None) -> Iterator[Change]:
        """Live changes of the shown conversation until its answer ends or the page looks elsewhere."""
        view = self.views.of(page_id)
        conversation_id, _ = view.meant(place)
        if conversation_id is None:
            return
        generation = self.chats.running(conversation_id)
        if generation is None or view.conversation_id is None:
            yield self.shown.news(view, conversation_id)
        with view.lock:
            if generation is None or view.conversation_id != conversation_id:
                return
            token = view.follow()
        version = -1
        shown: Change = {}
        while view.follower is token and view.conversation_id == conversation_id:
            view.followed_at = time.monotonic()
            if generation.finished:
                ended = self.shown.news(view, conversation_id)
                yield {**ended, **self.shown.listed(view)}
                if ended and ended["place"] != view.place:  # the person went on while this was on its way
                    yield self.shown.move(view, view.conversation_id, keep_window=True)
                if ended:
                    return
                break
            live = generation.wait(version, POLL_S)
            if live.version == version and live.phase != "model":
                continue
            version = live.version
            change = self.shown.live(view)
            if change != shown and not generation.finished:
                shown = change
                yield change
                _rest(generation)
        # A change that was on the way may arrive after the page has moved on; what comes last is right.
        last = self.shown.live(view)
        yield last
        if last != NOTHING_LIVE and self.shown.live(view) == NOTHING_LIVE:
            yield dict(NOTHING_LIVE)

    # inside

    def _act(self, page_id: str, place: str | None, action: Any) -> Change:
        view = self.views.of(page_id)
        conversation_id, revision = parse_place(place)
        if conversation_id is None:
            return {"notice": "Open a conversation first."}
        try:
            action(conversation_id, revision)
        except Refusal as error:
            return self._refused(view, conversation_id, error)
        return {**self.shown.stay(view, conversation_id), **self.shown.listed(view)}

    def _refused(self, view: View, conversation_id: str | None, error: Refusal) -> Change:
        change: Change = {"notice": str(error)}
        if isinstance(error, ChangedElsewhere):
            change |= self.shown.stay(view, conversation_id)
        return change


def read_uploads(files: list[Any]) -> list[Picture]:
    """Uploaded files as checked pictures; a Refusal names the first that is none."""
    return [read_picture(Path(file)) for file in files]


def _rest(generation: Any) -> None:
    """At most ten updates a second, yet a stop is noticed at once."""
    generation.stop_asked.wait(POLL_S)
