"""Embedding rows of recently seen pictures, encoded once per content."""

from __future__ import annotations

from collections import OrderedDict

import torch
from torch import Tensor

from engine.chat.prompt import ImageSpan
from engine.model.vision import VisionEncoder

_KEPT = 64


class EncodedPictures:
    """The most recently used pictures, by digest of their pixels and preprocessing."""

    def __init__(self, encoder: VisionEncoder | None, device: torch.device) -> None:
        self._encoder, self._device = encoder, device
        self._rows: OrderedDict[str, Tensor] = OrderedDict()

    def __call__(self, span: ImageSpan) -> Tensor:
        """Rows [tokens, hidden] of a picture."""
        image = span.image
        if image.digest not in self._rows:
            assert self._encoder is not None
            self._rows[image.digest] = self._encoder(image.pixels.to(self._device), image.grid)
            while len(self._rows) > _KEPT:
                self._rows.popitem(last=False)
        self._rows.move_to_end(image.digest)
        return self._rows[image.digest]
