"""The bulk sampler writes what the model would write alone, and the filter keeps what is good."""

from __future__ import annotations

import os
import random
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import pre_tokenizers

from assets.training import pieces
from assets.training.chats.filter import Filter, is_held, repeats
from assets.training.chats.mix import read_chats
from assets.training.teacher import llama, sample
from assets.training.teacher.gguf import decode, read_gguf, tokenizer_of
from assets.training.teacher.llama import FIRST, NEW, TAKEN, WRITE, WRITTEN, Scribe, Teacher, TeacherShape
from assets.training.teacher.prompts import Prompts

SHAPE = TeacherShape(layers=2, hidden=32, heads=4, kv_heads=2, theta=10000.0, eps=1e-5)


def weights(vocab: int) -> dict[str, torch.Tensor]:
    torch.manual_seed(3)
    sizes = {"attn_q": (32, 32), "attn_k": (16, 32), "attn_v": (16, 32), "attn_output": (32, 32)}
    sizes |= {"ffn_gate": (64, 32), "ffn_up": (64, 32), "ffn_down": (32, 64), "attn_norm": (32,), "ffn_norm": (32,)}
    made = {f"blk.{i}.{n}.weight": torch.randn(s) * 0.4 for i in range(2) for n, s in sizes.items()}
    return made | {"token_embd.weight": torch.randn(vocab, 32), "output_norm.weight": torch.ones(32)}


def greedy(teacher: Teacher, prompt: list[int], end: int, most: int) -> list[int]:
    """One conversation by itself, in a cache of its own."""
    cache = tuple(torch.zeros(2, 1, 2, 64, 8) for _ in range(2))
    written: list[int] = []
    fed = list(prompt)
    for at in range(63):
        logits = teacher.step(torch.tensor([fed[at]]), torch.tensor(at), torch.zeros(1, dtype=torch.long), cache)  # type: ignore[arg-type]
        if at >= len(prompt) - 1:
            token = int(logits.argmax())
            if token == end or len(written) >= most:
                return written
            written.append(token)
            fed.append(token)
    raise AssertionError("never ended")


def test_many_rows_write_what_each_would_write_alone() -> None:
    teacher, end = Teacher(SHAPE, weights(20), "cpu"), 7
    prompts = [[1, 4, 9], [2, 3], [5, 5, 5, 6, 11], [12, 13]]
    scripts = []
    for row in range(3):
        script: list[int] = []
        while len(script) < 80:
            for prompt in prompts[row:] + prompts[:row]:
                script += [NEW, *prompt, WRITE]
        scripts.append(script[:80])
    scribe = Scribe(teacher, 3, 60, end, most_written=6)
    tokens, kinds = scribe.round(torch.tensor(scripts), torch.zeros(3))
    seen = 0
    for row in range(3):
        starts = torch.nonzero(kinds[row] == FIRST).flatten().tolist()
        for number, (first, last) in enumerate(zip(starts, [*starts[1:], None], strict=True)):
            if last is None:
                continue
            prompt = (prompts[row:] + prompts[:row])[number % 4]
            part, kind = tokens[row, first:last].tolist(), kinds[row, first:last].tolist()
            assert part[: len(prompt)] == prompt
            answer = part[len(prompt) :]
            assert answer[-1] == end
            assert answer[:-1] == greedy(teacher, prompt, end, 6)
            assert kind[-1] == (WRITTEN if len(answer) - 1 < 6 else kind[-1])
            seen += 1
    assert seen >= 9
    again, _ = scribe.round(torch.tensor(scripts), torch.zeros(3))
    assert torch.equal(again, tokens)


def test_the_shortlist_is_searched_in_few_chunks() -> None:
    logits = torch.randn(5, 128 * 64).bfloat16()
    best, ids = llama._shortlist(logits)
    wanted = torch.topk(logits.float(), 40, -1).values
    assert torch.equal(best, wanted) and torch.equal(logits.float().gather(1, ids), wanted)


_INTERPRETED = """
import torch
from assets.training.teacher.attention import attend, attend_fast
torch.manual_seed(1)
rows, heads, groups, slots, width = 5, 6, 2, 80, 16
speed = 100.0 ** (-torch.arange(width // 2) / (width // 2))
order = torch.cat([torch.arange(0, width, 2), torch.arange(1, width, 2)])
plain, fast = ([torch.randn(rows, groups, slots, width) for _ in range(2)] for _ in range(2))
for at in range(70):
    start = torch.tensor([0, max(0, at - 1), at, at // 2, max(0, at - 33)])
    qkv, position = torch.randn(rows, (heads + 2 * groups) * width), torch.tensor(at)
    a, b = (f(qkv, *cache, position, start, speed) for f, cache in ((attend, plain), (attend_fast, fast)))
    assert torch.allclose(a, b, atol=1e-5), at
    assert torch.allclose(plain[0][:, :, at][..., order], fast[0][:, :, at], atol=1e-5)
    assert torch.equal(plain[1][:, :, at], fast[1][:, :, at])
"""


def test_fast_attention_is_the_plain_one() -> None:
    subprocess.run([sys.executable, "-c", _INTERPRETED], check=True, env={**os.environ, "TRITON_INTERPRET": "1"})


def test_torsos_end_with_a_sentence() -> None:
    text = "To sleep well, go to bed early. Keep your room dark and cool, like 18.5 degrees. 1. Read a"
    assert sample.whole_sentences(text) == text[: text.index(" 1. Read")]
    assert sample.whole_sentences("Too short. And then it") == ""


def test_cut_answers_are_told_from_finished_ones() -> None:
    kinds = np.array([FIRST, TAKEN, WRITTEN, WRITTEN, TAKEN, TAKEN, WRITTEN, TAKEN, FIRST, TAKEN])
    tokens = np.array([1, 2, 3, 9, 4, 5, 6, 9, 1, 2])  # the second answer ends by a taken 9: it was cut
    asked = [Prompts(random.Random(0), {}).make() for _ in range(2)]
    assert list(sample.conversations(tokens, kinds, asked, end=9)) == [(asked[0], [[3], [6]], True)]


def _string(text: str) -> bytes:
    return struct.pack("<Q", len(text.encode())) + text.encode()


def write_gguf(path: Path) -> dict[str, torch.Tensor]:
    """A whole small teacher file; returns the tensors that a reader must find."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    marks = ["<|im_start|>", "<|im_end|>"]
    fields: list[tuple[str, int, Any]] = [("general.architecture", 8, "llama")]
    numbers = {"block_count": 2, "embedding_length": 32, "attention.head_count": 4, "attention.head_count_kv": 2}
    fields += [(f"llama.{k}", 4, v) for k, v in numbers.items()]
    fields += [("llama.rope.freq_base", 6, 10000.0), ("llama.attention.layer_norm_rms_epsilon", 6, 1e-5)]
    vocabulary = [*marks, *alphabet]
    fields += [("tokenizer.ggml.tokens", 9, (8, vocabulary)), ("tokenizer.ggml.merges", 9, (8, ["a b"]))]
    fields += [("tokenizer.ggml.token_type", 9, (5, [3, 3] + [1] * len(alphabet)))]
    vocabulary.append("ab")
    fields[-1][2][1].append(1)
    body = b""
    for key, kind, value in fields:
        body += _string(key) + struct.pack("<I", kind)
        if kind == 8:
            body += _string(value)
        elif kind == 9:
            inner, values = value
            body += struct.pack("<IQ", inner, len(values))
            body += b"".join(_string(v) if inner == 8 else struct.pack("<i", v) for v in values)
        else:
            body += struct.pack("<I" if kind == 4 else "<f", value)
    tensors, data, records = weights(len(vocabulary)), b"", b""
    tensors["token_embd.weight"][1] *= 4  # so that the end mark is drawn now and then
    for name, value in tensors.items():
        dims = value.shape[::-1]
        records += _string(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, 0, len(data))
        data += value.numpy().tobytes() + b"\0" * (-len(value.numpy().tobytes()) % 32)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(fields)) + body + records
    path.write_bytes(head + b"\0" * (-len(head) % 32) + data)
    return tensors


def test_the_sample_stage_writes_shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tensors = write_gguf(tmp_path / "t.gguf")
    found = read_gguf(tmp_path / "t.gguf")
    assert all(torch.equal(found.tensors[n], v) for n, v in tensors.items())
    tokenizer = tokenizer_of(found.fields)
    assert (
        tokenizer.decode(tokenizer.encode("<|im_start|>abba 12").ids, skip_special_tokens=False)
        == "<|im_start|>abba 12"
    )
    arguments = [str(tmp_path / "t.gguf"), str(tmp_path), "--out", str(tmp_path / "shard"), "--seconds", "0"]
    monkeypatch.setattr(Filter, "_fault", lambda *_: None)  # this teacher talks nonsense
    sample.main([*arguments, "--rows", "3", "--length", "900", "--device", "cpu", "--most", "60", "--makers", "2"])
    chats = list(read_chats(tmp_path / "shard.0.jsonl.xz"))
    assert chats and all(len(c) % 2 == 0 and all(isinstance(t, str) for t in c) for c in chats)


def test_packed_numbers_are_decoded() -> None:
    scale, least = np.array([0.5, -1.0], np.float16)
    codes = np.arange(32) % 16
    packed = (codes[:16] | (codes[16:] << 4)).astype(np.uint8)
    block = np.concatenate([np.array([scale, least], np.float16).view(np.uint8), packed])
    assert decode(block, "Q4_1", (1, 32)).tolist() == [[0.5 * c - 1 for c in codes]]
    eight = np.concatenate(
        [np.array([0.25], np.float16).view(np.uint8), np.arange(-16, 16, dtype=np.int8).view(np.uint8)]
    )
    assert decode(eight, "Q8_0", (1, 32)).tolist() == [[0.25 * c for c in range(-16, 16)]]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("I like red and I like red and I like red and I like red.", "repetition"),
        ("As an AI language model, I have no opinion.", "boilerplate"),
        ("A fox is an animal that", "unfinished"),
        ("What is a fox? It is", "echo"),
        ("", "length"),
    ],
)
def test_bad_answers_are_dropped(answer: str, reason: str) -> None:
    chosen = Filter()
    assert chosen.keep(["What is a fox?" if reason != "echo" else "what is a fox? it is", answer]) == []
    assert reason in chosen.dropped or reason == "echo"


def test_good_turns_before_a_bad_one_stay() -> None:
    chat = ["What is a fox?", "A fox is a wild animal.", "Why?", "It is it is it is it is it is it is it is it is."]
    chosen = Filter(most_per_prompt=1)
    assert chosen.keep(chat) == chat[:2]
    assert chosen.keep(["What is a fox?", "It lives in the woods."]) == []  # the prompt was seen often enough
    assert not repeats("Bread is made from flour and water and baked in an oven.")


def test_the_split_follows_the_prompt() -> None:
    prompts = [f"What is thing number {i}?" for i in range(3000)]
    held = [p for p in prompts if is_held([p, "x"])]
    assert 20 < len(held) < 90
    assert all(is_held([p.upper(), "another answer"]) for p in held)


def test_pieces_make_the_file_again(tmp_path: Path) -> None:
    data = random.Random(1).randbytes((2 << 20) + 5)
    (tmp_path / "f").write_bytes(data)
    assert len(pieces.split(tmp_path / "f", tmp_path / "out", 1)) == 3
    pieces.join(tmp_path / "out" / "f", tmp_path / "g")
    assert (tmp_path / "g").read_bytes() == data
    (tmp_path / "out" / "f.1").write_bytes(b"x")
    with pytest.raises(AssertionError, match="do not make"):
        pieces.join(tmp_path / "out" / "f", tmp_path / "h")
