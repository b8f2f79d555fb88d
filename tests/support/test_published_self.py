"""The published configs are readable by transformers and have the published number of parameters."""

from __future__ import annotations

import os

import pytest
import torch

from tests import published


@pytest.mark.parametrize("name", list(published.TOTALS))
def test_transformers_counts_the_published_parameters(name: str) -> None:
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    import transformers

    content = published.load(name)
    content.pop("quantization_config", None)
    config = transformers.AutoConfig.for_model(**content)
    with torch.device("meta"):
        model = getattr(transformers, content["architectures"][0])._from_config(config)
    count = sum(p.numel() for p in model.parameters())
    assert count == pytest.approx(published.TOTALS[name].parameters, rel=published.TOLERANCE)
