"""Tiny byte-level BPE tokenizers whose special tokens sit at the ids that the config names."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

from .layout import write_json

_CORPUS = """
The engine loads the checkpoint, reads the tokens and writes the answer. Sparse attention selects a few keys for each
query; the router selects a few experts for each token. Quantized weights are small numbers with a shared scale.
def attention(query, key, value): return softmax(query @ key.T) @ value
for layer in range(len(layers)): hidden = hidden + layers[layer](norm(hidden))
{"role": "user", "content": "What is in this picture?"} {"role": "assistant", "content": "A small red square."}
Der Router wählt für jedes Token einige Experten aus. Les poids aléatoires sont déterministes. 今天天气很好。
量化后的权重。
0 1 2 3 4 5 6 7 8 9 10 11 12 16 32 64 128 256 512 1024 2048 4096 3.14159 2.71828
"""

_TEXTS = ("The engine loads the checkpoint.", "  def f(x):\n\treturn x * 2", "量化后的权重 🙂", "aléatoires — 3.14159")


@dataclass(frozen=True)
class TokenizerSpec:
    """``first`` special tokens get ids 0.., ``last`` end at ``vocab_size - 1``; BPE tokens lie between."""

    first: list[str] = field(default_factory=list)
    last: list[str] = field(default_factory=list)
    bos: str | None = None
    eos: str | None = None
    pad: str | None = None
    chat_template: str | None = None


def write_tokenizer(spec: TokenizerSpec, vocab_size: int, out_dir: Path) -> tuple[Tokenizer, range]:
    """Write tokenizer.json, tokenizer_config.json and the chat template, if there is one.

    Returns the tokenizer and the id range of its ordinary tokens.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size - len(spec.last),
        special_tokens=[AddedToken(t, special=True) for t in spec.first],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_CORPUS.splitlines(), trainer)
    ordinary = range(len(spec.first), tokenizer.get_vocab_size())
    filler = vocab_size - len(spec.last) - tokenizer.get_vocab_size()
    names = [f"<|reserved_{i}|>" for i in range(filler)] + spec.last
    tokenizer.add_special_tokens([AddedToken(t, special=True) for t in names])
    assert tokenizer.get_vocab_size() == vocab_size, "vocabulary too small for 256 bytes and the special tokens"
    tokenizer.save(str(out_dir / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        "bos_token": spec.bos,
        "eos_token": spec.eos,
        "pad_token": spec.pad,
        "model_max_length": 4096,
    }
    write_json(out_dir / "tokenizer_config.json", config)
    if spec.chat_template is not None:
        (out_dir / "chat_template.jinja").write_text(spec.chat_template, encoding="utf-8")
    return tokenizer, ordinary


def tokenizer_examples(out_dir: Path, tokenizer: Tokenizer, has_template: bool, has_images: bool) -> dict[str, object]:
    """Text-to-ids pairs and one rendered chat (image tokens not yet repeated)."""
    examples: dict[str, object] = {"encode": [{"text": t, "ids": tokenizer.encode(t).ids} for t in _TEXTS]}
    if has_template:
        from transformers import PreTrainedTokenizerFast

        question = [{"type": "image"}, {"type": "text", "text": "What is in this picture?"}]
        messages = [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": question if has_images else "What is 2+2?"},
            {"role": "assistant", "content": "A small red square."},
            {"role": "user", "content": "Why?"},
        ]
        fast = PreTrainedTokenizerFast.from_pretrained(out_dir)
        text = fast.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        examples["chat"] = {"messages": messages, "text": text, "ids": ids}
    return examples
