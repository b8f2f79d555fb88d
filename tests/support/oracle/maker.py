"""Makes one checkpoint with its expected outputs, and keeps made ones by a hash of everything they depend on."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from .case import EXPECTED_INFO, EXPECTED_TENSORS, OracleCase, load_case
from .families import FAMILIES, Family
from .layout import CheckpointWriter, write_json
from .prompt import IMAGE_FOLDER, make_prompt
from .reference import NearTie, compute, prefix_lengths
from .tokens import tokenizer_examples, write_tokenizer
from .weights import randomize

THREADS = 1  # fixed, because how a reduction is split changes its last bits; one is fast and robust on busy machines
MAX_ATTEMPTS = 60
_STALE_SECONDS = 24 * 3600


def merge_options(family: Family, options: dict[str, Any]) -> dict[str, Any]:
    """The family's options with some replaced."""
    unknown = set(options) - set(family.options)
    if unknown:
        raise ValueError(f"{family.name} has no option {sorted(unknown)}; it has {sorted(family.options)}")
    return {**family.options, **options}


def apply_overrides(config: dict[str, Any], overrides: dict[str, Any]) -> None:
    """Set existing config fields; ``a.b`` descends, and a bare key may also lie in text_config."""
    for key, value in overrides.items():
        target, *path = config, *key.split(".")
        for part in path[:-1]:
            target = target[part]
        leaf = path[-1]
        if leaf not in target and leaf in target.get("text_config", {}):
            target = target["text_config"]
        if leaf not in target:
            raise ValueError(f"unknown config key {key!r}")
        target[leaf] = value


@contextmanager
def fixed_threads() -> Iterator[None]:
    """A fixed number of torch threads inside the block, so that results do not depend on the caller."""
    before = torch.get_num_threads()
    torch.set_num_threads(THREADS)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def make_checkpoint(
    family: str,
    out_dir: Path,
    *,
    seed: int = 0,
    overrides: dict[str, Any] | None = None,
    options: dict[str, Any] | None = None,
    tokens: int = 257,
    shards: int = 2,
) -> OracleCase:
    """Write a tiny checkpoint of ``family`` to the new directory ``out_dir`` with what transformers computes from it.

    ``overrides`` sets config fields, ``options`` the family's exporter switches (``FAMILIES[family].options``), and
    ``tokens`` the prompt length. Prompts are drawn until no selection and no greedy step is near a tie, so that a
    correct fp32 engine reproduces every selection exactly. Equal arguments give equal bytes on one machine type.
    """
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    maker = FAMILIES[family]
    if out_dir.exists() and any(out_dir.iterdir()):
        raise FileExistsError(f"{out_dir} is not empty")
    out_dir.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=".making-", dir=out_dir.parent))
    try:
        with fixed_threads():
            merged = merge_options(maker, options or {})
            _make(maker, work, seed=seed, overrides=overrides or {}, options=merged, tokens=tokens, shards=shards)
        work.chmod(0o755)
        work.rename(out_dir)  # fails if another process has made the same case meanwhile
    except OSError:
        if not (out_dir / EXPECTED_INFO).exists():
            raise
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return load_case(out_dir)


def _make(
    family: Family,
    work: Path,
    *,
    seed: int,
    overrides: dict[str, Any],
    options: dict[str, Any],
    tokens: int,
    shards: int,
) -> None:
    config = family.config(options)
    apply_overrides(config, overrides)
    text = config.get("text_config", config)
    if tokens < 4 * text["index_topk"] * family.index_ratio:
        raise ValueError(f"{tokens} tokens do not exceed index_topk {text['index_topk']} several times")

    (work / IMAGE_FOLDER).mkdir()
    write_json(work / "config.json", config)
    write_json(work / "generation_config.json", family.generation_config(config))
    preprocessor = family.preprocessor_config()
    if preprocessor is not None:
        write_json(work / "preprocessor_config.json", preprocessor)
    spec = family.tokenizer(config, options)
    tokenizer, ordinary = write_tokenizer(spec, text["vocab_size"], work)

    model = family.build(work)
    randomize(model, seed, ordinary)
    writer = CheckpointWriter()
    family.export(model.state_dict(), writer, config, options)  # also gives the model the values as stored
    like = family.prepare_media(work, model, writer, config, seed)
    writer.write(work, shards)

    bos = text.get("bos_token_id")
    reason: NearTie | None = None
    for attempt in range(MAX_ATTEMPTS):
        prompt = make_prompt(like, tokens, ordinary=ordinary, bos=bos, seed=seed, attempt=attempt)
        try:
            reference = compute(model, prompt)
            break
        except NearTie as problem:
            reason = problem
    else:
        raise RuntimeError(f"{MAX_ATTEMPTS} prompts, all with near ties; last: {reason}")

    tensors = {name: tensor.contiguous() for name, tensor in reference.tensors.items()}
    save_file(tensors, work / EXPECTED_TENSORS)
    info = {
        "family": family.name,
        "reference_class": type(model).__name__,
        "versions": _versions(),
        "seed": seed,
        "prompt_attempt": attempt,
        "options": options,
        "overrides": overrides,
        "fp8_block": list(options.get("fp8_block", (128, 128))),
        "prefix_lengths": prefix_lengths(tokens),
        "images": prompt.images,
        "smallest_selection_margin": reference.smallest_margin,
        "smallest_greedy_logit_gap": reference.smallest_logit_gap,
        "cached_vs_uncached_max_abs": reference.cache_difference,
        "logits_std": float(reference.tensors["logits"].std()),
        "attention_score_std": {str(k): v for k, v in sorted(reference.trace.score_std.items())},
        "tokenizer": tokenizer_examples(work, tokenizer, spec.chat_template is not None, bool(like.images)),
    }
    write_json(work / EXPECTED_INFO, info)


def _versions() -> dict[str, str]:
    return {name: version(name) for name in ("torch", "transformers", "tokenizers", "pillow")}


def source_hash() -> str:
    """Changes with the source of this package and with the versions of what it calls."""
    digest = hashlib.sha256(json.dumps(_versions()).encode())
    for file in sorted(Path(__file__).parent.rglob("*.py")):
        digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


def cached_case(root: Path, family: str, **settings: Any) -> OracleCase:
    """The case of these arguments of ``make_checkpoint``, made below ``root`` unless it is there already.

    Any other keyword is an option of the family: ``cached_case(root, "hy_v4", experts="bf16", seed=3)``.
    """
    known = {"seed", "overrides", "options", "tokens", "shards"}
    arguments = {k: v for k, v in settings.items() if k in known}
    extra = {k: v for k, v in settings.items() if k not in known}
    options = merge_options(FAMILIES[family], {**(arguments.get("options") or {}), **extra})
    arguments = {"seed": 0, "overrides": None, "tokens": 257, "shards": 2, **arguments, "options": options}
    key = json.dumps([family, {k: v or None for k, v in sorted(arguments.items())}], sort_keys=True)
    folder = root / source_hash()
    path = folder / f"{family}-{hashlib.sha256(key.encode()).hexdigest()[:16]}"
    if (path / EXPECTED_INFO).exists():
        return load_case(path)
    return make_checkpoint(family, path, **arguments)


def drop_stale(root: Path) -> None:
    """Remove what an older source of this package made, once nobody has used it for a day."""
    current = source_hash()
    for folder in root.iterdir() if root.exists() else ():
        if folder.name != current and folder.stat().st_mtime < time.time() - _STALE_SECONDS:
            shutil.rmtree(folder, ignore_errors=True)
