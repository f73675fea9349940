"""The device as `torch.accelerator` and `torch.virtual` show it, and the mistakes that it refuses."""

from __future__ import annotations

import collections
import contextlib
import copy
import io
import pickle
import threading
from collections.abc import Iterator

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import paceline.virtual as virtual


def test_accelerator_names_counts_and_switches_devices() -> None:
    assert torch.accelerator.current_accelerator() == torch.device("virtual")
    assert torch.accelerator.is_available()
    assert torch.accelerator.device_count() == 5
    torch.accelerator.set_device_index(3)
    assert torch.accelerator.current_device_index() == 3
    assert torch.empty(1, device="virtual").device == torch.device("virtual:3")
    with torch.accelerator.device_index(1):
        assert torch.empty(1, device="virtual").device.index == 1
    with torch.virtual.device(2):
        assert torch.accelerator.current_device_index() == 2
    assert torch.accelerator.current_device_index() == 3


def test_each_thread_has_its_own_current_device() -> None:
    torch.accelerator.set_device_index(2)
    seen = []
    thread = threading.Thread(target=lambda: seen.append(torch.accelerator.current_device_index()))
    thread.start()
    thread.join()
    assert seen == [0]


@pytest.mark.parametrize(
    "mistake",
    [
        lambda: torch.ones(2, device="virtual:5"),
        lambda: torch.ones(2).to("virtual:5"),
        lambda: torch.accelerator.set_device_index(7),
        lambda: torch.virtual.memory_allocated(9),
        lambda: virtual.memory(5),
    ],
)
def test_bad_index_raises_accelerator_error(mistake) -> None:
    with pytest.raises(torch.AcceleratorError, match="invalid device ordinal"):
        mistake()


ON = "virtual:1"


@pytest.mark.parametrize(
    "mistake",
    [
        lambda: torch.ones(2, device=ON) + torch.ones(2),
        lambda: torch.ones(2, device=ON) + torch.ones(2, device="virtual:2"),
        lambda: torch.ones(2, device=ON) + torch.tensor(1.0, device="virtual:2"),
        lambda: torch.ones(2, 2, device=ON) @ torch.ones(2, 2),
        lambda: nn.Linear(2, 2).to(ON)(torch.ones(1, 2, device="virtual:2")),
        lambda: torch.cat([torch.ones(2, device=ON), torch.ones(2)]),
        lambda: torch.add(torch.ones(2, device=ON), 1, out=torch.empty(2)),
        lambda: torch.ones(4)[torch.tensor([0], device=ON)],
        lambda: nn.functional.mse_loss(torch.ones(2, device=ON), torch.ones(2)),
        lambda: nn.functional.cross_entropy(torch.ones(2, 3, device=ON), torch.zeros(2, dtype=torch.long)),
        lambda: nn.functional.cross_entropy(torch.ones(3, device=ON), torch.tensor(0)),
        lambda: torch.ones(4, device=ON).index_select(0, torch.tensor(0)),
        lambda: torch.ones(4, device=ON).take(torch.tensor(0)),
        lambda: torch.bucketize(torch.tensor(0.5), torch.ones(4, device=ON)),
        lambda: torch.searchsorted(torch.ones(4, device=ON), torch.tensor(0.5)),
        lambda: nn.functional.huber_loss(torch.tensor(1.0, device=ON), torch.tensor(1.0)),
    ],
)
def test_mixed_devices_raise_pytorchs_own_error(mistake) -> None:
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        mistake()


def test_numbers_and_cpu_indices_mix_with_a_device_as_on_cuda() -> None:
    x = torch.arange(4.0, device=ON)
    assert (x + torch.tensor(1.0)).tolist() == [1, 2, 3, 4]
    assert x[torch.tensor([0, 2])].tolist() == [0, 2]
    assert torch.where(x > 1, x, torch.tensor(0.0)).tolist() == [0, 0, 2, 3]


def test_forked_process_is_refused_as_by_cuda() -> None:
    x = torch.ones(2, device=ON)
    said = torch.multiprocessing.get_context("fork").SimpleQueue()

    def work() -> None:
        torch.manual_seed(0)  # a DataLoader's worker does this, and it must not hurt
        for use in (lambda: torch.ones(2, device=ON), lambda: x.add_(1), x.cpu, lambda: x[0].item()):
            try:
                use()
                said.put("worked")
            except RuntimeError as error:
                said.put(str(error))

    child = torch.multiprocessing.get_context("fork").Process(target=work)
    child.start()
    child.join()
    assert child.exitcode == 0
    assert all("must use the 'spawn' start method" in said.get() for _ in range(4))
    assert x.tolist() == [1, 1]


def test_generator_of_another_device_is_refused() -> None:
    with pytest.raises(RuntimeError, match="Expected a 'virtual' device type for generator"):
        torch.empty(2, device=ON).normal_(generator=torch.Generator())


def test_one_seed_gives_the_numbers_of_the_cpu_on_every_device() -> None:
    def draw(device: str) -> list[torch.Tensor]:
        torch.manual_seed(7)
        drawn = [
            torch.randn(5, device=device),
            torch.rand(5, device=device),
            torch.randint(0, 9, (5,), device=device),
            torch.empty(5, device=device).bernoulli_(0.5),
            torch.randperm(6, device=device),
            torch.multinomial(torch.ones(9, device=device), 4),
            nn.functional.dropout(torch.ones(9, device=device)),
            torch.native_dropout(torch.ones(9, device=device), 0.5, True)[0],
        ]
        return [value.cpu() for value in drawn]

    expected = draw("cpu")
    for device in ("virtual:0", "virtual:4"):
        assert all(map(torch.equal, draw(device), expected))


def test_generators_are_independent_and_keep_their_state() -> None:
    torch.virtual.manual_seed_all(3)
    state = torch.virtual.get_rng_state(1)
    first = torch.rand(3, device="virtual:1")
    torch.rand(3, device="virtual:2")
    torch.rand(3)
    torch.virtual.set_rng_state(state, 1)
    assert torch.equal(torch.rand(3, device="virtual:1"), first)
    own = torch.Generator(device=ON).manual_seed(5)
    again = torch.Generator(device=ON).manual_seed(5)
    assert own.device == torch.device(ON)
    assert torch.equal(torch.rand(3, device=ON, generator=own), torch.rand(3, device=ON, generator=again))


@pytest.mark.parametrize(
    ("state", "error"),
    [
        (torch.zeros(3, dtype=torch.uint8), RuntimeError),
        (torch.zeros_like(torch.get_rng_state()), RuntimeError),
        (torch.get_rng_state().float(), TypeError),
    ],
)
def test_bad_state_is_refused_as_by_the_cpu(state: torch.Tensor, error: type[Exception]) -> None:
    with pytest.raises(error):
        torch.set_rng_state(state)
    torch.virtual.manual_seed_all(3)
    expected = torch.rand(3, device="virtual:0")
    torch.virtual.manual_seed_all(3)
    with pytest.raises(error):
        torch.virtual.set_rng_state(state)
    assert torch.equal(torch.rand(3, device="virtual:0"), expected)


def test_native_dropout_leaves_the_cpus_generator_alone() -> None:
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    torch.native_dropout(torch.ones(9, device=ON), 0.5, True)
    assert torch.equal(torch.rand(3), expected)


class NotesItsMasks(nn.Module):
    def __init__(self, masks: dict[int, list[torch.Tensor]]) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))
        self.masks = masks

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return checkpoint(self.drop, x * self.weight, use_reentrant=False)

    def drop(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(10):
            x = nn.functional.dropout(x, 0.1)
            self.masks[x.device.index].append(x.detach() != 0)
        return x


@contextlib.contextmanager
def busy_cpu_generator() -> Iterator[None]:
    """Its state is saved and restored all the time, as by the checkpoints of other threads."""
    done = threading.Event()

    def save_and_restore() -> None:
        while not done.is_set():
            torch.set_rng_state(torch.get_rng_state())

    thread = threading.Thread(target=save_and_restore)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def test_checkpoints_under_data_parallel_draw_the_same_masks_again() -> None:
    masks: dict[int, list[torch.Tensor]] = collections.defaultdict(list)
    model = nn.DataParallel(NotesItsMasks(masks).to("virtual:0"), device_ids=[0, 1, 2, 3])
    with busy_cpu_generator():
        model(torch.ones(400, 100, device="virtual:0")).sum().backward()
    assert len(masks) == 4
    for drawn in masks.values():
        again = drawn[10:]  # the last one is not needed again
        assert len(again) == 9
        assert all(map(torch.equal, drawn[:9], again))


def test_streams_and_events() -> None:
    side = torch.Stream(device="virtual:2")
    start, end = (torch.Event(device="virtual", enable_timing=True) for _ in range(2))
    start.record()
    with side:
        assert torch.accelerator.current_stream() == side
        assert torch.accelerator.current_device_index() == 2
        torch.ones(3, device="virtual:2")
    assert torch.accelerator.current_stream() == torch.virtual.default_stream()
    side.wait_stream(torch.accelerator.current_stream())
    end.record()
    end.synchronize()
    torch.accelerator.synchronize()
    assert end.query()
    assert side.query()
    assert start.elapsed_time(end) > 0
    with pytest.raises(ValueError, match="recorded"):
        start.elapsed_time(torch.Event(device="virtual", enable_timing=True))


def test_module_identity_survives_the_move() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.LSTM(2, 2))
    weight = model[0].weight
    weight.mark = "kept"
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    model.to("virtual:3")
    assert model[0].weight is weight
    assert weight.device == torch.device("virtual:3")
    assert weight.mark == "kept"
    before = weight.detach().clone()
    model[0](torch.ones(1, 2, device="virtual:3")).sum().backward()
    optimizer.step()
    assert not torch.equal(weight, before)


def test_saving_loading_copying_pickling() -> None:
    model = nn.Linear(3, 3).to("virtual:2")
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    for place in ("cpu", "virtual:4", None):
        file.seek(0)
        loaded = torch.load(file, map_location=place)["weight"]
        assert str(loaded.device) == (place or "virtual:2")
        assert torch.equal(loaded.cpu(), model.weight.cpu())
    assert copy.deepcopy(model).weight.device == model.weight.device
    assert torch.equal(pickle.loads(pickle.dumps(model.weight)).cpu(), model.weight.cpu())


def test_device_context_pinning_printing_numpy() -> None:
    with torch.device("virtual:1"):
        assert nn.Linear(2, 2).weight.device.index == 1
    pinned = torch.ones(3).pin_memory()
    assert pinned.is_pinned()
    assert not torch.ones(3).is_pinned()
    assert pinned.to(ON, non_blocking=True).tolist() == [1, 1, 1]
    assert repr(torch.arange(2.0, device=ON)) == "tensor([0., 1.], device='virtual:1')"
    assert torch.ones(2, device=ON).cpu().numpy().tolist() == [1, 1]
    with pytest.raises(TypeError, match="convert"):
        torch.ones(2, device=ON).numpy()


def test_second_install_keeps_the_devices_and_refuses_what_cannot_be() -> None:
    virtual.install(devices=5)
    with pytest.raises(ValueError, match="already has 5"):
        virtual.install(devices=4)
    for memory in (0, -1):
        with pytest.raises(ValueError, match=r"cannot have .* bytes of memory"):
            virtual.install(devices=5, memory=memory)
