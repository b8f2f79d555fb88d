"""Prompt text of DeepSeek-V3.2 and V4, whose checkpoints ship no template. Tools are not written.

A conversation is begin, system text, then per turn a user part and an assistant part that ends the sentence. The
reasoning of earlier turns is left out: such an answer begins with the mark that closes reasoning.
"""

from __future__ import annotations

from collections.abc import Sequence

from engine.chat.style import EncodeOptions
from engine.errors import BadRequest
from engine.messages import Message

BEGIN, END = "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"
USER, ASSISTANT = "<｜User｜>", "<｜Assistant｜>"
THINK, ANSWER = "<think>", "</think>"
IMAGE_PLACEHOLDER = "<｜deepseek_image｜>"

DEFAULT_EFFORT = "high"
# Put before the system text when the model is to think. The default has none. The words the model was trained with are
# in the checkpoint's own encoder file, which is code and is not run; these say the same.
EFFORTS = {
    "low": "Reasoning effort: low. Think briefly and answer as soon as the answer is clear.\n\n",
    DEFAULT_EFFORT: "",
    "max": "Reasoning effort: maximum. Think through every step, alternative and edge case before the answer, and check "
    "each conclusion again.\n\n",
}


def _turns(messages: Sequence[Message], thinking: bool) -> str:
    parts = []
    for message in messages:
        if message.role == "system":
            parts.append(message.text)
        elif message.role == "user":
            parts += [USER, IMAGE_PLACEHOLDER * len(message.images), message.text]
        else:
            parts += [ASSISTANT, ANSWER, message.text, END]
    if messages and messages[-1].role != "assistant":
        parts += [ASSISTANT, THINK if thinking else ANSWER]
    return "".join(parts)


def encode_v32(messages: Sequence[Message], options: EncodeOptions) -> str:
    """DeepSeek-V3.2; it has no reasoning effort, so a wish for one changes nothing."""
    return BEGIN + _turns(messages, options.thinking)


def encode_v4(messages: Sequence[Message], options: EncodeOptions) -> str:
    """DeepSeek-V4; raises BadRequest for an unknown reasoning effort. Pictures stand before the text of their message."""
    effort = options.reasoning_effort or DEFAULT_EFFORT
    if effort not in EFFORTS:
        raise BadRequest(f"The reasoning effort {effort!r} is not known; this model has {', '.join(EFFORTS)}.")
    return BEGIN + (EFFORTS[effort] if options.thinking else "") + _turns(messages, options.thinking)
