"""Conversations at work: turns a person's message into rows, a thread that answers it, and saved text.

Owns the running generations and the engine's sessions. The prompt always comes from the store, never from a page."""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from app import saved, transfer
from app.generation import Generation
from app.images import Picture
from app.opening import OpeningModel, one_line
from app.prompt import build_prompt, reply_options
from app.refusals import Busy, Refusal, StoreError
from app.store import Answer, Conversation, Message, ReplySettings, Store
from engine.errors import EngineError

log = logging.getLogger("dayzero")

SAVE_EVERY_S = 0.5
LIVE_SESSIONS = 16  # the engine itself parks idle ones sooner when their memory is needed
CONTINUE_TEXT = "Please continue exactly where you stopped."


class Chats:
    """All conversations of one app. Every method may be called from any thread and returns at once."""

    def __init__(self, store: Store, model: OpeningModel) -> None:
        self.store = store
        self.model = model
        self._lock = threading.RLock()
        self._running: dict[str, Generation] = {}
        self._threads: dict[str, threading.Thread] = {}
        self._sessions: OrderedDict[str, Any] = OrderedDict()
        self._unsaved: dict[int, Answer] = {}
        self._forgetting: list[threading.Thread] = []

    # what a page shows

    def running(self, conversation_id: str) -> Generation | None:
        """The generation of this conversation, if one is at work."""
        with self._lock:
            return self._running.get(conversation_id)

    def busy_ids(self) -> set[str]:
        """Conversations that are being answered."""
        with self._lock:
            return set(self._running)

    def path(self, conversation_id: str) -> list[Message]:
        """The branch that is shown, with text that is newer in memory than on disk."""
        messages = self.store.path(conversation_id)
        generation = self.running(conversation_id)
        return [self._freshest(message, generation) for message in messages]

    def _freshest(self, message: Message, generation: Generation | None) -> Message:
        if generation is not None and generation.message_id == message.id:
            return replace(message, text=generation.text, thinking=generation.thinking)
        answer = self._unsaved.get(message.id)
        if answer is None:
            return message
        return replace(
            message,
            text=answer.text,
            thinking=answer.thinking,
            state=answer.state,
            finish_reason=answer.finish_reason,
            error=answer.error or "This answer is not saved yet: the disk is full.",
            stats=answer.stats,
        )

    # what a person does

    def send(
        self,
        conversation_id: str | None,
        text: str,
        pictures: Sequence[Picture] = (),
        revision: int | None = None,
        settings: ReplySettings | None = None,
        title: str | None = None,
    ) -> Generation:
        """Store a message (in a new conversation when the id is None, called `title`) and start its answer."""
        text = text.strip("\r\n")
        if not text.strip() and not pictures:
            raise Refusal("Write something or add a picture first.")
        self._check_sight(pictures)
        with self._lock:
            new = conversation_id is None
            conversation = (
                self.store.create(title or _title(text, pictures), settings) if new else self._idle(conversation_id)
            )
            if not new and settings is not None and settings != conversation.settings:
                conversation = self.store.configure(conversation.id, settings, revision)
                revision = None if revision is None else conversation.revision
            try:
                user = self.store.add_user(
                    conversation.id, conversation.leaf_id, text, pictures, revision=None if new else revision
                )
                return self._answer(conversation.id, user.id)
            except BaseException:
                if new and self.running(conversation.id) is None:
                    self._forget_empty(conversation.id)
                raise

    def regenerate(
        self, conversation_id: str, message_id: int | None = None, revision: int | None = None
    ) -> Generation:
        """Another version of an answer (None: the last one); the old version stays reachable."""
        with self._lock:
            self._idle(conversation_id)
            path = self.store.path(conversation_id)
            message = path[-1] if message_id is None and path else self._on_path(path, message_id)
            user_id = message.id if message.role == "user" else message.parent_id
            assert user_id is not None
            return self._answer(conversation_id, user_id, revision)

    def edit(self, conversation_id: str, message_id: int, text: str, revision: int | None = None) -> Generation:
        """Another version of a user message with the same pictures, and its answer; the old branch stays reachable."""
        with self._lock:
            self._idle(conversation_id)
            message = self._on_path(self.store.path(conversation_id), message_id)
            if message.role != "user":
                raise Refusal("Only your own messages can be edited.")
            if not text.strip() and not message.attachments:
                raise Refusal("An edited message needs some text.")
            user = self.store.add_user(
                conversation_id, message.parent_id, text.strip("\r\n"), keep_from=message.id, revision=revision
            )
            return self._answer(conversation_id, user.id)

    def go_on(self, conversation_id: str, revision: int | None = None) -> Generation:
        """Continue after a stop, an interruption or a length limit: behind the last word, or anew if none came.

        A model that thinks first is asked for the rest instead, because its thoughts cannot be taken up."""
        with self._lock:
            self._idle(conversation_id)
            path = self.store.path(conversation_id)
            if not path:
                raise Refusal("There is nothing to continue yet.")
            last = path[-1]
            if last.role == "user" or not last.text.strip():
                return self.regenerate(conversation_id, revision=revision)
            info = self.model.status.info
            if info is not None and not info.thinks and not last.thinking:
                self.store.reopen_answer(conversation_id, last.id, revision)
                return self._start(Generation(conversation_id, last.id, last.text))
            user = self.store.add_user(conversation_id, last.id, CONTINUE_TEXT, revision=revision)
            return self._answer(conversation_id, user.id)

    def stop(self, conversation_id: str) -> bool:
        """Stop the answer now; the text so far is kept. True when there was something to stop."""
        generation = self.running(conversation_id)
        if generation is None:
            return False
        generation.stop_asked.set()
        session = generation.session
        if session is not None:
            session.cancel()
        # The page does not wait for the engine to notice: the answer ends here and the thread drains alone.
        self._finish(generation, "stopped", finish_reason="cancelled")
        return True

    def delete(self, conversation_id: str) -> None:
        """Stop, forget and remove a conversation with its pictures and its saved state."""
        self.stop(conversation_id)
        self.store.delete(conversation_id)
        with self._lock:
            session = self._sessions.pop(conversation_id, None)
            answering = self._threads.get(conversation_id)
            thread = threading.Thread(
                target=self._forget, args=(conversation_id, session, answering), name="forget", daemon=True
            )
            self._forgetting = [one for one in self._forgetting if one.is_alive()] + [thread]
            thread.start()

    def sweep(self) -> None:
        """Delete state whose conversation is gone, once the model is open: an earlier app may have been killed."""
        try:
            self.model.wait()
            saved.sweep(self.store.directory, self.store.ids)
        except (EngineError, Refusal, OSError):
            log.debug("saved state was not swept", exc_info=True)

    def export(self, conversation_id: str, path: Path, with_state: bool) -> None:
        """Write a conversation into one zip file."""
        with self._lock:
            session = self._sessions.get(conversation_id)
        if session is not None and with_state:
            session.save()  # what the last turn sealed may still be on its way to the disk
        transfer.export_conversation(self.store, conversation_id, path, with_state)

    def import_(self, path: Path) -> Conversation:
        """Take a conversation over from a zip file."""
        return transfer.import_conversation(self.store, path)

    def save_leftovers(self) -> None:
        """Try again to save answers that met a full disk."""
        for message_id, answer in list(self._unsaved.items()):
            try:
                self.store.update_answer(message_id, answer)
            except StoreError:
                return
            self._unsaved.pop(message_id, None)

    def close(self) -> None:
        """Stop everything and save what is there."""
        for conversation_id in self.busy_ids():
            self.stop(conversation_id)
        with self._lock:
            threads = [*self._threads.values(), *self._forgetting]
        for thread in threads:
            thread.join(5)
        self.save_leftovers()

    # inside

    def _idle(self, conversation_id: str | None) -> Conversation:
        assert conversation_id is not None
        if conversation_id in self._running:
            raise Busy("The answer is still being written; stop it first.")
        return self.store.get(conversation_id)

    def _on_path(self, path: list[Message], message_id: int | None) -> Message:
        for message in path:
            if message.id == message_id:
                return message
        raise Refusal("This message is not part of the branch that is shown.")

    def _check_sight(self, pictures: Sequence[Picture]) -> None:
        info = self.model.status.info
        if pictures and info is not None and not info.sees_images:
            raise Refusal(f"{info.name} reads text only; remove the picture or open a model that sees.")

    def _forget(self, conversation_id: str, session: Any, answering: threading.Thread | None) -> None:
        """Drop memory and saved state; not before a stopped answer has left the engine, which saves at its end."""
        if answering is not None:
            answering.join()
        try:
            if session is not None:
                session.close()
            saved.forget(self.store.directory, conversation_id, self.model.engine)
        except (EngineError, OSError):
            log.warning("the saved state of a deleted conversation stays until the next start", exc_info=True)

    def _forget_empty(self, conversation_id: str) -> None:
        try:
            self.store.delete(conversation_id)
        except StoreError:
            log.debug("an empty conversation stayed behind", exc_info=True)

    def _answer(self, conversation_id: str, user_id: int, revision: int | None = None) -> Generation:
        message = self.store.add_answer(conversation_id, user_id, revision)
        return self._start(Generation(conversation_id, message.id))

    def _start(self, generation: Generation) -> Generation:
        conversation_id = generation.conversation_id
        before = self._threads.get(conversation_id)
        thread = threading.Thread(
            target=self._run, args=(generation, before), name=f"answer-{generation.message_id}", daemon=True
        )
        self._running[conversation_id] = generation
        self._threads[conversation_id] = thread
        thread.start()
        return generation

    def _run(self, generation: Generation, before: threading.Thread | None) -> None:
        try:
            if before is not None:
                before.join()  # a stopped answer may still be leaving the engine
            engine = self.model.wait(generation.stop_asked.is_set)
            if engine is None or generation.stop_asked.is_set():
                return
            conversation = self.store.get(generation.conversation_id)
            path = self.store.path(generation.conversation_id, generation.message_id)
            messages = build_prompt(conversation.settings, path if generation.goes_on else path[:-1])
            session = self._session(engine, generation.conversation_id)
            generation.session = session
            if generation.stop_asked.is_set():
                return
            options = reply_options(conversation.settings, continue_last=generation.goes_on)
            self._consume(generation, session.reply(messages, options))
            state = "stopped" if generation.finish_reason == "cancelled" else "done"
            self._finish(generation, state, generation.finish_reason or "stop")
        except (EngineError, Refusal) as error:
            self._finish(generation, "error", error=str(error))
        except Exception as error:
            log.exception("an answer failed")
            self._finish(generation, "error", error=f"The answer failed: {one_line(error)}.")
        finally:
            self._finish(generation, "stopped", finish_reason="cancelled")
            with self._lock:
                if self._threads.get(generation.conversation_id) is threading.current_thread():
                    del self._threads[generation.conversation_id]

    def _consume(self, generation: Generation, events: Any) -> None:
        saved_at = time.monotonic()
        try:
            for event in events:
                if generation.stop_asked.is_set():
                    return
                generation.take(event)
                if time.monotonic() - saved_at >= SAVE_EVERY_S:
                    self._save_partial(generation)
                    saved_at = time.monotonic()
        finally:
            close = getattr(events, "close", None)
            if close is not None:
                close()  # tells the engine to cancel when the loop was left early

    def _save_partial(self, generation: Generation) -> None:
        if generation.finished:
            return
        try:
            self.store.update_answer(generation.message_id, Answer(generation.text, generation.thinking, "streaming"))
            generation.warn("")
        except StoreError as error:
            generation.warn(str(error))

    def _finish(self, generation: Generation, state: Any, finish_reason: str = "", error: str = "") -> None:
        with self._lock:
            if generation.finished:
                return
            answer = Answer(generation.text, generation.thinking, state, finish_reason, error, generation.stats)
            try:
                self.store.update_answer(generation.message_id, answer)
            except StoreError:
                # Shown text is never lost: it stays in memory and is saved when the disk has room again.
                self._unsaved[generation.message_id] = answer
            self._running.pop(generation.conversation_id, None)
            generation.finish()

    def _session(self, engine: Any, conversation_id: str) -> Any:
        session = engine.start(conversation_id)
        with self._lock:
            self._sessions[conversation_id] = session
            self._sessions.move_to_end(conversation_id)
            idle = [key for key in self._sessions if key not in self._threads]
            old = [self._sessions.pop(key) for key in idle[: max(0, len(self._sessions) - LIVE_SESSIONS)]]
        for one in old:
            one.close()
        return session


def _title(text: str, pictures: Sequence[Picture]) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if lines:
        return lines[0]
    return f"Picture {pictures[0].name}" if pictures else "New conversation"
