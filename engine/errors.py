"""What can go wrong with a person's file, machine or request. Every message is one sentence written for that person."""

from __future__ import annotations


class EngineError(Exception):
    """Base of all errors a person should read; `str(error)` is the sentence."""


class BadCheckpoint(EngineError):
    """The checkpoint directory is damaged, incomplete or contradicts itself."""


class UnsupportedModel(EngineError):
    """No family claims this config, or the config asks for something this version cannot compute."""


class DoesNotFit(EngineError):
    """The plan needs more memory than the machine or the person's settings give."""


class BadImage(EngineError):
    """A file that should be a picture cannot be used as one."""


class BadRequest(EngineError):
    """The messages or options of one request make no sense (empty message, unknown role, option out of range)."""


class PromptTooLong(EngineError):
    """The prompt does not fit into the model's context or the cache."""


class BadState(EngineError):
    """Saved state is damaged or belongs to something else; the prompt is read again instead."""
