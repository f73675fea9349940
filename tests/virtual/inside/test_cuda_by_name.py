"""A script that says `cuda` by name. It changes this process for good, so it has a file of its own."""

from __future__ import annotations

import io
import warnings

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.profiler import ProfilerActivity, profile
from torch.utils.checkpoint import checkpoint

import paceline.virtual as virtual
from paceline.virtual.data_parallel import _for_cuda_alone

virtual.install(devices=5, as_cuda=True)


def test_devices_tensors_modules() -> None:
    assert torch.cuda.is_available()
    assert torch.cuda.device_count() == 5
    device = torch.device("cuda:1")
    assert device == torch.device("virtual:1")
    model = nn.Linear(4, 4).cuda(2)
    x = torch.randn(3, 4, device="cuda:2")
    assert x.is_cuda
    assert not x.cpu().is_cuda
    assert model(x).to(device).device.index == 1
    assert torch.zeros(2).cuda().device.index == 0
    torch.cuda.set_device("cuda:3")
    assert torch.zeros(2, device="cuda").device.index == 3


def test_memory_streams_events() -> None:
    x = torch.ones(10, device="cuda:4")
    assert torch.cuda.memory_allocated("cuda:4") >= 40
    assert torch.cuda.get_device_properties(4).total_memory > 0
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    with torch.cuda.stream(torch.cuda.Stream()):
        x = x.add(1)
    end.record()
    torch.cuda.synchronize()
    assert start.elapsed_time(end) > 0
    assert x.sum().item() == 20


def test_mixed_precision() -> None:
    model = nn.Linear(4, 4).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cuda")
    with torch.autocast("cuda", dtype=torch.bfloat16):
        out = model(torch.ones(2, 4, device="cuda"))
    assert out.dtype == torch.bfloat16
    scaler.scale(out.float().sum()).backward()
    scaler.step(optimizer)
    scaler.update()


class InFloat32(torch.autograd.Function):
    @staticmethod
    @torch.amp.custom_fwd(device_type="cuda", cast_inputs=torch.float32)
    def forward(ctx, x: Tensor) -> Tensor:
        return x @ x

    @staticmethod
    @torch.amp.custom_bwd(device_type="cuda")
    def backward(ctx, gradient: Tensor) -> Tensor:
        return gradient @ gradient


def test_mixed_precision_by_queries_and_custom_functions() -> None:
    x = torch.ones(2, 2, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    assert not torch.is_autocast_enabled("cuda")
    with torch.autocast("cuda", dtype=torch.bfloat16):
        assert torch.is_autocast_enabled("cuda")
        assert torch.is_autocast_enabled()
        assert torch.get_autocast_dtype("cuda") == torch.get_autocast_gpu_dtype() == torch.bfloat16
        out = InFloat32.apply(x)
    assert out.dtype == torch.float32
    out.sum().backward()
    torch.set_autocast_enabled("cuda", True)
    assert torch.is_autocast_enabled("virtual")
    torch.set_autocast_enabled("cuda", False)


class NamesCuda(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) + torch.zeros(4, device=f"cuda:{x.get_device()}")


def test_nccl_is_not_asked_to_add_what_only_says_cuda() -> None:
    """A build of PyTorch with CUDA has NCCL, and asks each tensor whether it is on cuda."""
    with_cuda = _for_cuda_alone(lambda tensors: all(tensor.is_cuda for tensor in tensors))
    assert torch.ones(2).cuda().is_cuda
    tensors = [torch.ones(2).cuda(0), torch.ones(2).cuda(1)]
    assert not with_cuda(tensors)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # where it is asked after all, a build without NCCL warns
        assert not torch.cuda.nccl.is_available(tensors)


def test_data_parallel_translates_in_its_threads() -> None:
    model = nn.DataParallel(NamesCuda().cuda(), device_ids=[0, 1, 2])
    model(torch.randn(6, 4).cuda()).sum().backward()
    assert model.module.layer.weight.grad.is_cuda


def test_backward_translates_in_hooks_and_checkpoints() -> None:
    x = torch.ones(4, device="cuda:1", requires_grad=True)
    x.register_hook(lambda gradient: gradient + torch.ones(4, device="cuda:1"))
    checkpoint(lambda t: t * torch.full((4,), 2.0, device="cuda:1"), x, use_reentrant=False).sum().backward()
    assert x.grad.tolist() == [3, 3, 3, 3]
    (gradient,) = torch.autograd.grad((x * 2).sum(), x)
    assert gradient.tolist() == [3, 3, 3, 3]


def test_memory_summary_speaks_of_virtual_devices() -> None:
    x = torch.ones(2**20, device="cuda:0")
    assert "4096 KiB" in torch.cuda.memory_summary(0)
    assert torch.cuda.memory.memory_allocated(0) >= x.nbytes


def test_profiler_sees_operators_and_prints_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    x = torch.ones(2, 2, device="cuda:0")
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as seen:
        x @ x
    assert "aten::mm" in {event.key for event in seen.key_averages()}
    assert "Failed to record" not in capfd.readouterr().err


def test_saved_and_loaded_under_the_name_cuda() -> None:
    file = io.BytesIO()
    torch.save({"w": torch.ones(2, device="cuda:1")}, file)
    file.seek(0)
    assert torch.load(file, map_location="cuda:0")["w"].device.index == 0


def test_nccl_means_gloo() -> None:
    dist.init_process_group("nccl", rank=0, world_size=1, store=dist.HashStore())
    x = torch.ones(2, device="cuda")
    dist.all_reduce(x)
    assert x.tolist() == [1, 1]
    dist.destroy_process_group()
