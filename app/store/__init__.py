"""Where conversations live: SQLite and picture files beside it. Nothing outside this folder knows SQL."""

from app.store.records import Answer, Attachment, Conversation, Message, ReplySettings
from app.store.store import TRANSFER_PREFIX, Store, read_titles
from app.store.whole import WholeConversation, WholeMessage

__all__ = [
    "TRANSFER_PREFIX",
    "Answer",
    "Attachment",
    "Conversation",
    "Message",
    "ReplySettings",
    "Store",
    "WholeConversation",
    "WholeMessage",
    "read_titles",
]
