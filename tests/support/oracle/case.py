"""A written checkpoint with its expected outputs, as tests read it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from torch import Tensor

from .layout import decode_all, load_tensors, read_json, read_raw
from .prompt import IMAGE_FOLDER

EXPECTED_TENSORS = "expected/expected.safetensors"
EXPECTED_INFO = "expected/expected.json"


@dataclass(frozen=True)
class OracleCase:
    """One checkpoint directory and what transformers computes from it. ``tensors``, with T prompt tokens:

    =============================  ==========================  ====================================================
    input_ids                      int64 [T]                   the prompt
    logits, final_hidden           [T, V], [T, H]              one pass without cache; hidden after the last norm
    topk.L                         int32 [T, K]                selected entries of layer L's own indexer, ascending,
                                                               visible ones only, padded with -1
    topk_margin.L                  [T]                         distance from a tie, in std of the row's scores
    router.L.ids, router.L.weights int32 / float [T, k]        chosen experts ascending, and their final weights
    layer_out.L, probe_rows        [R, H] or [R, 4, H], [R]    residual stream(s) after layer L at a few rows
    greedy.N.ids, greedy.N.logits  int64 [16], [16, V]         argmax continuation of the first N tokens
    pixel_values, image_grid_thw   [P, C*p*p], int64 [n, 3]    families with images only, as are the next three
    image_features                 [tokens, H]                 vision tower output, newline vectors included
    position_ids, position_delta   int64 [3, T], [1]           rope positions; generated token i sits at i + delta
    =============================  ==========================  ====================================================
    """

    path: Path
    family: str
    tensors: dict[str, Tensor]
    info: dict[str, Any]

    @cached_property
    def config(self) -> dict[str, Any]:
        """config.json"""
        return read_json(self.path / "config.json")

    @property
    def text_config(self) -> dict[str, Any]:
        """The part of config.json that describes the language model."""
        return self.config.get("text_config", self.config)

    @property
    def input_ids(self) -> Tensor:
        return self.tensors["input_ids"]

    @property
    def prefix_lengths(self) -> list[int]:
        """The N of all ``greedy.N``."""
        return self.info["prefix_lengths"]

    @property
    def image_paths(self) -> list[Path]:
        return [self.path / IMAGE_FOLDER / image["file"] for image in self.info["images"]]

    def layers(self, kind: str) -> list[int]:
        """Layers that have a tensor of this kind, e.g. ``layers("topk")``."""
        return sorted({int(name.split(".")[1]) for name in self.tensors if name.startswith(f"{kind}.")})

    def raw(self) -> dict[str, Tensor]:
        """Every tensor as stored, by on-disk name."""
        return read_raw(self.path)

    def decoded(self) -> dict[str, Tensor]:
        """Float32 value of every stored weight, by on-disk name, scales consumed."""
        return decode_all(self.raw(), tuple(self.info["fp8_block"]))

    def is_mtp(self, name: str) -> bool:
        """True for on-disk names of next-token-prediction layers, which readers must skip."""
        layers = self.text_config["num_hidden_layers"]
        return name.startswith(("mtp.", "model.mtp_layers.", f"model.layers.{layers}."))


def load_case(path: Path) -> OracleCase:
    """Read a directory written by ``make_checkpoint``."""
    info = read_json(path / EXPECTED_INFO)
    return OracleCase(path, str(info["family"]), load_tensors(path / EXPECTED_TENSORS), info)
