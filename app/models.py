"""Turns what a person writes after --model into a directory of safetensors. Reads no weights and knows no engine."""

from __future__ import annotations

import re
from pathlib import Path

from app import assets, settings
from app.refusals import Refusal

# Only data files: nothing that could hold code is ever asked for.
WANTED_FILES = ["*.safetensors", "*.json", "*.jinja", "tokenizer*", "*.tiktoken", "vocab.txt", "merges.txt"]
UNWANTED_FILES = ["*.py", "*.bin", "*.pt", "*.pth", "*.ckpt", "*.h5", "*.msgpack", "*.onnx", "*.gguf", "original/*"]
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


def find_model(wish: str | None) -> Path:
    """Directory of the wished model: the demo when None, a directory, or a hub id (downloaded with a progress bar)."""
    if wish is None:
        return assets.demo_model()
    path = Path(wish).expanduser()
    if path.is_dir():
        return path.absolute()
    if path.exists():
        raise Refusal(f"'{wish}' is a file; --model takes the directory that holds config.json and the safetensors.")
    if not _HUB_ID.fullmatch(wish):
        raise Refusal(f"There is no directory '{wish}'.")
    return _from_hub(wish)


def _from_hub(model_id: str) -> Path:
    settings.keep_hub_quiet()
    import huggingface_hub
    from huggingface_hub import errors

    try:
        cached = huggingface_hub.snapshot_download(
            model_id, allow_patterns=WANTED_FILES, ignore_patterns=UNWANTED_FILES, local_files_only=True
        )
        if _looks_whole(Path(cached)):
            return Path(cached)
    except (errors.LocalEntryNotFoundError, errors.HFValidationError, OSError):
        pass
    try:
        return Path(
            huggingface_hub.snapshot_download(model_id, allow_patterns=WANTED_FILES, ignore_patterns=UNWANTED_FILES)
        )
    except errors.GatedRepoError:
        raise Refusal(f"'{model_id}' asks for a licence to be accepted on its hub page, and a login here.") from None
    except errors.RepositoryNotFoundError:
        raise Refusal(f"'{model_id}' is neither a directory here nor a public model on the hub.") from None
    except errors.HFValidationError:
        raise Refusal(f"'{model_id}' is neither a directory here nor a valid hub id.") from None
    except Exception as error:
        # The hub client wraps a missing network in many classes; all mean the same to a person.
        if isinstance(error, OSError) and getattr(error, "errno", None) == 28:
            raise Refusal(f"The disk is full; '{model_id}' could not be downloaded.") from None
        raise Refusal(
            f"'{model_id}' is not a directory and not in the local cache, and the hub cannot be reached."
        ) from None


def _looks_whole(directory: Path) -> bool:
    """Whether a cached snapshot has its config and every shard that its index names."""
    if not (directory / "config.json").exists():
        return False
    index = directory / "model.safetensors.index.json"
    if not index.exists():
        return any(directory.glob("*.safetensors"))
    import json

    try:
        shards = set(json.loads(index.read_text("utf-8"))["weight_map"].values())
    except (ValueError, KeyError, AttributeError, TypeError):
        return True  # a damaged index is the engine's to explain
    return all((directory / shard).exists() for shard in shards if isinstance(shard, str))
