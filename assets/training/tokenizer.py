"""Stage: train the byte-pair tokenizer on teacher chats, templates and picture answers.

python -m assets.training.tokenizer WORK --chats WORK/chats.jsonl.gz
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterable, Iterator
from pathlib import Path

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from assets.training.chats.mix import read_chats, template_document
from assets.training.material import Material
from assets.training.pictures.mix import picture_document
from assets.training.shape import SPECIAL_TOKENS


def train_tokenizer(texts: Iterable[str], vocab: int) -> Tokenizer:
    """Byte-level BPE, digits one by one, special tokens first."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(
        texts,
        trainers.BpeTrainer(
            vocab_size=vocab,
            special_tokens=list(SPECIAL_TOKENS),
            initial_alphabet=alphabet,
            min_frequency=2,
            show_progress=False,
        ),
    )
    return tokenizer


def corpus(material: Material, chats: list[list[str]], templates: int, pictures: int, seed: int = 3) -> Iterator[str]:
    """Everything the model will read, in about the proportions of training."""
    for chat in chats:
        yield from chat
    rng = random.Random(seed)
    for _ in range(templates):
        for turn in template_document(rng, material).turns:
            yield from turn[:2]
    for _ in range(pictures):
        for turn in picture_document(rng, material).turns:
            yield from turn[:2]


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m assets.training.tokenizer", description=__doc__)
    parser.add_argument("work", type=Path, help="work folder of the sources stage; tokenizer.json goes there")
    parser.add_argument("--chats", type=Path, nargs="*", default=[])
    parser.add_argument("--vocab", type=int, default=4096)
    parser.add_argument("--templates", type=int, default=60_000)
    parser.add_argument("--pictures", type=int, default=6_000)
    wishes = parser.parse_args(arguments)
    chats = [chat for path in wishes.chats for chat in read_chats(path)]
    texts = corpus(Material.load(wishes.work), chats, wishes.templates, wishes.pictures)
    tokenizer = train_tokenizer(texts, wishes.vocab)
    tokenizer.save(str(wishes.work / "tokenizer.json"))
    print(f"{wishes.work / 'tokenizer.json'}: {tokenizer.get_vocab_size()} tokens")


if __name__ == "__main__":
    main()
