"""Bytes held and bytes copied, against arithmetic."""

from __future__ import annotations

import time

import pytest
import torch
from torch import Tensor, nn

import paceline.virtual as virtual
from paceline.virtual import Transfers

DIM = 512
BATCH = 64
FLOAT = 4


class LargeLinearModelMP(nn.Module):
    """The course's model: square layers, spread over devices in order."""

    def __init__(self, dim: int, num_layers: int, num_devices: int) -> None:
        super().__init__()
        self.places = [torch.device("virtual", i * num_devices // num_layers) for i in range(num_layers)]
        self.layers = nn.ModuleList(nn.Linear(dim, dim, bias=False).to(place) for place in self.places)

    def forward(self, x: Tensor) -> Tensor:
        for layer, place in zip(self.layers, self.places, strict=True):
            x = layer(x.to(place))
        return x


def between_devices() -> dict[tuple[str, str], Transfers]:
    return {pair: made for pair, made in virtual.transfers().items() if "cpu" not in pair}


@pytest.mark.parametrize(("num_devices", "expected"), [(2, 1), (5, 4)])
def test_model_parallel_forward_makes_one_copy_per_border(num_devices: int, expected: int) -> None:
    model = LargeLinearModelMP(DIM, 10, num_devices)
    x = torch.randn(BATCH, DIM, device="virtual:0")
    virtual.reset_transfers()
    out = model(x)
    activation = Transfers(1, BATCH * DIM * FLOAT)
    assert between_devices() == {(f"virtual:{i}", f"virtual:{i + 1}"): activation for i in range(expected)}
    assert sum(made.count for made in virtual.transfers().values()) == expected
    out.sum().backward()
    gradients = {(f"virtual:{i + 1}", f"virtual:{i}"): activation for i in range(expected)}
    assert between_devices() == gradients | {
        (f"virtual:{i}", f"virtual:{i + 1}"): activation for i in range(expected)
    }


@pytest.mark.parametrize("num_devices", [2, 5])
def test_model_parallel_peak_is_the_arithmetic(num_devices: int) -> None:
    num_layers = 10
    model = LargeLinearModelMP(DIM, num_layers, num_devices)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    batch = torch.randn(BATCH, DIM)
    for _ in range(2):
        virtual.reset_peak()
        x = batch.to("virtual:0")
        loss = model(x).sum()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        del x, loss
    layers_here = num_layers // num_devices
    layer = DIM * DIM * FLOAT
    activation = BATCH * DIM * FLOAT
    for index in range(num_devices):
        # The peak is where the last gradient of this device is made: all weights, all gradients, the
        # input of its first layer, and the gradient that arrives there; behind the first device also
        # the gradient that leaves.
        expected = 2 * layers_here * layer + (2 if index == 0 else 3) * activation
        assert virtual.memory(index).peak_bytes == pytest.approx(expected, rel=0.01)


def test_live_bytes_follow_tensors_exactly() -> None:
    before = virtual.memory(2).live_bytes
    x = torch.empty(1000, device="virtual:2")
    view = x[10:20]
    assert virtual.memory(2).live_bytes - before == 4000
    doubled = x * 2
    assert virtual.memory(2).live_bytes - before == 8000
    x.untyped_storage().resize_(400)
    assert virtual.memory(2).live_bytes - before == 4400
    x.untyped_storage().resize_(0)
    del view, doubled
    assert virtual.memory(2).live_bytes == before
    assert torch.accelerator.memory_allocated(2) == before
    assert torch.accelerator.max_memory_allocated(2) - before >= 8000
    torch.accelerator.reset_peak_memory_stats(2)
    assert torch.accelerator.max_memory_allocated(2) == before == torch.virtual.max_memory_allocated(2)


def test_results_that_share_memory_are_counted_once() -> None:
    x = torch.ones(100, device="virtual:3")
    before = virtual.memory(3).live_bytes
    shared = [x.view(10, 10), x.reshape(4, 25), x.detach(), x.contiguous(), x.expand(3, 100), *x.split(10)]
    x.add_(1).mul_(2)
    out = torch.add(x, 1, out=torch.empty(100, device="virtual:3"))
    assert virtual.memory(3).live_bytes - before == 400
    assert len(shared) == 15
    assert out.sum().item() == 500


def test_memory_limit_raises_out_of_memory_and_the_process_goes_on() -> None:
    virtual.install(devices=5, memory="1MiB")
    before = virtual.memory(4).live_bytes
    with pytest.raises(torch.OutOfMemoryError, match=r"Tried to allocate 2\.00 MiB\. Device virtual:4"):
        torch.empty(2**19, device="virtual:4")
    x = torch.zeros(600, 300, device="virtual:4")
    with pytest.raises(torch.OutOfMemoryError):
        x.exp()
    with pytest.raises(torch.OutOfMemoryError):
        x.untyped_storage().resize_(2**21)
    del x
    assert virtual.memory(4).live_bytes == before
    assert virtual.memory(4).limit_bytes == 2**20
    assert torch.ones(10, device="virtual:4").sum().item() == 10


def test_tensor_is_as_it_was_after_a_refused_resize() -> None:
    virtual.install(devices=5, memory="1MiB")
    x = torch.arange(8, device="virtual:4")
    before = virtual.memory(4).live_bytes
    with pytest.raises(torch.OutOfMemoryError):
        x.untyped_storage().resize_(2**50)  # more than any machine has
    with pytest.raises(torch.OutOfMemoryError):
        x.resize_(2**18)
    assert virtual.memory(4).live_bytes == before
    assert x.untyped_storage().nbytes() == 64
    assert x.mul_(2).tolist() == [0, 2, 4, 6, 8, 10, 12, 14]
    assert x.resize_(9)[:8].tolist() == [0, 2, 4, 6, 8, 10, 12, 14]


def test_refused_result_does_not_keep_another_from_its_memory() -> None:
    virtual.install(devices=5, memory="1MiB")
    values = torch.empty(0, dtype=torch.uint8, device="virtual:4")
    indices = torch.empty(0, dtype=torch.int64, device="virtual:4")
    with pytest.raises(torch.OutOfMemoryError):  # 8 bytes for every index, 1 for every value
        torch.sort(torch.ones(120_000, dtype=torch.uint8, device="virtual:4"), out=(values, indices))
    assert [values.untyped_storage().nbytes(), indices.untyped_storage().nbytes()] == [120_000, 0]
    torch.sort(torch.arange(8, dtype=torch.uint8, device="virtual:4"), descending=True, out=(values, indices))
    assert indices.tolist() == [7, 6, 5, 4, 3, 2, 1, 0]


def test_copies_count_the_bytes_that_cross() -> None:
    x = torch.ones(10)
    there = x.to("virtual:1")
    there.to("virtual:2", torch.float16)  # converted on the source
    there.to("virtual:1")  # already there
    there[:5].cpu()
    there.sum().item()
    assert virtual.transfers() == {
        ("cpu", "virtual:1"): Transfers(1, 40),
        ("virtual:1", "virtual:2"): Transfers(1, 20),
        ("virtual:1", "cpu"): Transfers(2, 24),
    }


@pytest.mark.parametrize(
    ("non_blocking", "to_device", "to_host"),
    [(False, 20, 40), (True, 40, 20)],  # the host converts if it waits, else the device
)
def test_copies_that_convert_count_the_type_that_crosses(
    non_blocking: bool, to_device: int, to_host: int
) -> None:
    there = torch.ones(10).to("virtual:1", torch.bfloat16, non_blocking=non_blocking)
    there.float().to("cpu", torch.bfloat16, non_blocking=non_blocking)
    there.to("virtual:2", torch.float32, non_blocking=non_blocking)  # converted on the source
    assert virtual.transfers() == {
        ("cpu", "virtual:1"): Transfers(1, to_device),
        ("virtual:1", "cpu"): Transfers(1, to_host),
        ("virtual:1", "virtual:2"): Transfers(1, 40),
    }


def test_data_parallel_equals_one_device_and_loads_device_0() -> None:
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Linear(DIM, DIM), nn.ReLU(), nn.Linear(DIM, DIM))
    parameters_bytes = sum(p.numel() * FLOAT for p in plain.parameters())
    x = torch.randn(4 * BATCH, DIM)
    expected = plain(x)
    expected.square().mean().backward()
    gradients = [p.grad.clone() for p in plain.parameters()]
    plain.zero_grad()
    model = nn.DataParallel(plain.to("virtual:0"), device_ids=[0, 1, 2, 3])
    inputs = x.to("virtual:0")
    virtual.reset_transfers()
    virtual.reset_peak()
    out = model(inputs)
    assert out.device == torch.device("virtual:0")
    out.square().mean().backward()
    torch.testing.assert_close(out.cpu(), expected)
    for parameter, gradient in zip(plain.parameters(), gradients, strict=True):
        torch.testing.assert_close(parameter.grad.cpu(), gradient)
    chunk = BATCH * DIM * FLOAT
    # Parameters in one buffer, one chunk of the batch, and the chunk of the output's gradient.
    out_of_0 = Transfers(3, parameters_bytes + 2 * chunk)
    # Gradients in one buffer and one chunk of the output.
    into_0 = Transfers(2, parameters_bytes + chunk)
    for index in (1, 2, 3):
        assert virtual.transfers()["virtual:0", f"virtual:{index}"] == out_of_0
        assert virtual.transfers()[f"virtual:{index}", "virtual:0"] == into_0
    assert not any("virtual:0" not in pair for pair in virtual.transfers())
    extra = virtual.memory(0).peak_bytes - virtual.memory(1).peak_bytes
    # At least the gathered output, the whole input, and the sum of gradients live on device 0 alone.
    assert extra > parameters_bytes


def test_link_makes_a_copy_take_its_time() -> None:
    virtual.install(devices=5, link="100MB/s,10ms")
    x = torch.empty(20_000_000, dtype=torch.uint8, device="virtual:0")
    start, end = (torch.Event(device="virtual", enable_timing=True) for _ in range(2))
    began = time.monotonic()
    start.record()
    x.to("virtual:1")
    end.record()
    torch.accelerator.synchronize(0)
    assert time.monotonic() - began >= 0.21
    assert 210 <= start.elapsed_time(end) < 400


def test_copy_within_a_device_waits_for_its_stream() -> None:
    virtual.install(devices=5, link="40MB/s")
    there = torch.empty(8_000_000, dtype=torch.uint8, device="virtual:1")
    into = torch.empty_like(there)
    torch.accelerator.synchronize(1)
    began = time.monotonic()
    there.copy_(torch.empty(8_000_000, dtype=torch.uint8).pin_memory(), non_blocking=True)  # 0.2 s
    into.copy_(there)
    assert time.monotonic() - began >= 0.2


def test_indices_on_the_cpu_take_the_time_of_the_link() -> None:
    virtual.install(devices=5, link="1GB/s,200ms")
    x = torch.arange(4, device="virtual:1")
    torch.accelerator.synchronize(1)
    began = time.monotonic()
    x[torch.tensor([0, 2])]
    assert time.monotonic() - began >= 0.2


def test_link_takes_the_time_of_the_link_and_not_that_of_this_machine_too() -> None:
    source = torch.empty(4000, 8000, dtype=torch.uint8).pin_memory().t()  # slow to copy, being transposed
    there = torch.empty(8000, 4000, dtype=torch.uint8, device="virtual:3")
    torch.accelerator.set_device_index(3)
    shares = []
    for _ in range(5):
        virtual.install(devices=5, link="160MB/s")  # 0.2 s
        start, end = (torch.Event(device="virtual", enable_timing=True) for _ in range(2))
        start.record()
        began = time.monotonic()
        there.copy_(source, non_blocking=True)
        copying_s = time.monotonic() - began
        end.record()
        torch.accelerator.synchronize()
        shares.append((start.elapsed_time(end) / 1e3 - 0.2) / copying_s)
    assert min(shares) < 0.5


def test_copy_on_a_side_stream_overlaps_with_the_host_and_other_streams() -> None:
    virtual.install(devices=5, link="40MB/s")
    source = torch.empty(20_000_000, dtype=torch.uint8).pin_memory()
    side = torch.Stream(device="virtual:2")
    torch.ones(3, device="virtual:2")
    copied = torch.Event(device="virtual")
    with side:
        arrived = source.to("virtual:2", non_blocking=True)
        copied.record()
    with torch.virtual.device(2):
        torch.ones(3, device="virtual:2").mul_(2)  # the default stream does not wait
        assert not copied.query()
        began = time.monotonic()
        torch.accelerator.current_stream().wait_event(copied)
        arrived.add_(1)  # and now it does
        assert time.monotonic() - began > 0.1
        assert copied.query()
