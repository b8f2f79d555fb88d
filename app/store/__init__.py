"""Where conversations live: SQLite and picture files beside it. Nothing outside this folder knows SQL."""

from app.store.records import Answer, Attachment, Conversation, Message, ReplySettings
from app.store.store import Store

__all__ = ["Answer", "Attachment", "Conversation", "Message", "ReplySettings", "Store"]
