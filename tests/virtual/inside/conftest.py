"""Five virtual devices for the tests of this folder, and clean counters for each of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

import paceline.virtual as virtual

virtual.install(devices=5)


@pytest.fixture(autouse=True)
def clean_counters() -> Iterator[None]:
    torch.accelerator.set_device_index(0)
    torch.manual_seed(0)
    virtual.reset_transfers()
    virtual.reset_peak()
    yield
    virtual.install(devices=5)  # no limit, no link
