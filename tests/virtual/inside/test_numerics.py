"""What a virtual device computes is what the CPU computes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

DEVICE = "virtual:1"


class Transformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.1, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.encoder(x)


class Recurrent(nn.Module):
    def __init__(self, kind: type[nn.RNNBase]) -> None:
        super().__init__()
        self.cells = kind(8, 16, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.cells(x)[0]


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Dropout(0.3), nn.Linear(32, 4))


def cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(8 * 49, 5)
    )


def embedding() -> nn.Module:
    return nn.Sequential(nn.Embedding(10, 8), nn.LayerNorm(8), nn.SiLU(), nn.Linear(8, 3))


MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[], Tensor], bool]] = {
    # model, input, and whether the CPU runs the very same kernels
    "mlp": (mlp, lambda: torch.randn(6, 16), True),
    "cnn": (cnn, lambda: torch.randn(4, 3, 16, 16), True),
    "transformer": (Transformer, lambda: torch.randn(2, 7, 32), True),
    "embedding": (embedding, lambda: torch.randint(0, 10, (4, 5)), True),
    # The CPU has fused recurrent layers; accelerators have fused cells.
    "lstm": (lambda: Recurrent(nn.LSTM), lambda: torch.randn(5, 2, 8), False),
    "gru": (lambda: Recurrent(nn.GRU), lambda: torch.randn(5, 2, 8), False),
}
OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, foreach=False),
    "sgd foreach": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, foreach=True),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01, foreach=False),
    "adamw foreach": lambda p: torch.optim.AdamW(p, lr=0.01, foreach=True),
    "adamw fused": lambda p: torch.optim.AdamW(p, lr=0.01, fused=True),
}


def train(device: str, model_name: str, optimizer_name: str) -> list[Tensor]:
    make_model, make_input, _ = MODELS[model_name]
    torch.manual_seed(0)
    model = make_model().to(device)
    optimizer = OPTIMIZERS[optimizer_name](model.parameters())
    losses = []
    inputs = [make_input() for _ in range(4)]
    torch.manual_seed(1)  # dropout draws from the device's own generator
    for x in inputs:
        loss = model(x.to(device)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.detach().cpu())
    return losses + [parameter.detach().cpu() for parameter in model.parameters()]


@pytest.mark.parametrize("optimizer_name", OPTIMIZERS)
@pytest.mark.parametrize("model_name", MODELS)
def test_training_equals_cpu(model_name: str, optimizer_name: str) -> None:
    expected = train("cpu", model_name, optimizer_name)
    found = train(DEVICE, model_name, optimizer_name)
    if MODELS[model_name][2]:
        assert all(map(torch.equal, expected, found))
    else:
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def views(x: Tensor) -> Tensor:
    x[1:3, ::2] = 5
    x.view(-1)[0] = 1
    x.t().add_(1)
    x.unfold(1, 2, 1).mul_(2)
    x[x > 9] = 0
    x.index_put_((torch.tensor([0], device=x.device),), torch.ones(4, device=x.device), accumulate=True)
    x.resize_(5, 4)[4].zero_()
    return x


def outputs(x: Tensor) -> Tensor:
    grown = torch.empty(0, device=x.device)
    torch.add(x, 1, out=grown)
    values, indices = torch.empty(0, device=x.device), torch.empty(0, dtype=torch.long, device=x.device)
    torch.sort(grown.flatten(), descending=True, out=(values, indices))
    part = torch.zeros(4, 8, device=x.device)
    torch.mul(x, 2, out=part[:, ::2])
    return torch.cat([values, indices, part.flatten()])


def selection(x: Tensor) -> Tensor:
    found = [
        torch.topk(x, 2).values,
        torch.nonzero(x > 0).float(),
        torch.unique(x.round()),
        x.masked_select(x > 0),
    ]
    return torch.cat([part.flatten() for part in found])


def foreach(x: Tensor) -> Tensor:
    parts = [part.clone() for part in x]
    torch._foreach_mul_(parts, 2)
    torch._foreach_addcdiv_(parts, parts, [part + 10 for part in parts])
    return torch.cat([torch.stack(parts).flatten(), torch.stack(torch._foreach_norm(parts))])


def complex_and_linear_algebra(x: Tensor) -> Tensor:
    spectrum = torch.fft.rfft(x).conj()
    solved = torch.linalg.solve(x + 5 * torch.eye(4, device=x.device), x)
    real = torch.view_as_real(spectrum.resolve_conj())
    return torch.cat([real.flatten(), solved.flatten(), spectrum.imag.flatten()])


def function_transforms(x: Tensor) -> Tensor:
    gradient = torch.func.vmap(torch.func.grad(lambda row: (row**3).sum()))(x)
    return gradient + torch.func.jvp(torch.sin, (x,), (torch.ones_like(x),))[1]


def double_backward(x: Tensor) -> Tensor:
    x = x.detach().requires_grad_()
    (first,) = torch.autograd.grad((x.sin() * x).sum(), x, create_graph=True)
    return torch.autograd.grad(first.square().sum(), x)[0]


@pytest.mark.parametrize(
    "compute",
    [views, outputs, selection, foreach, complex_and_linear_algebra, function_transforms, double_backward],
)
def test_tensor_programs_equal_cpu(compute: Callable[[Tensor], Tensor]) -> None:
    start = torch.randn(4, 4)
    expected = compute(start.clone())
    found = compute(start.to(DEVICE))
    assert found.device == torch.device(DEVICE)
    assert torch.equal(found.cpu(), expected)


def test_autograd_crosses_devices() -> None:
    first, second = nn.Linear(4, 4).to("virtual:0"), nn.Linear(4, 4).to("virtual:3")
    x = torch.randn(2, 4, requires_grad=True)
    second(first(x.to("virtual:0")).relu().to("virtual:3")).sum().backward()
    reference = [layer.cpu() for layer in (nn.Linear(4, 4), nn.Linear(4, 4))]
    for copy, layer in zip(reference, (first, second), strict=True):
        copy.load_state_dict({name: value.cpu() for name, value in layer.state_dict().items()})
    y = x.detach().requires_grad_()
    reference[1](reference[0](y).relu()).sum().backward()
    assert torch.equal(x.grad, y.grad)
    parameters = [*first.parameters(), *second.parameters()]
    expected = [parameter.grad for layer in reference for parameter in layer.parameters()]
    assert all(torch.equal(p.grad.cpu(), g) for p, g in zip(parameters, expected, strict=True))
    norm = nn.utils.clip_grad_norm_(parameters, 0.1)
    torch.testing.assert_close(norm.cpu(), torch.stack([g.norm() for g in expected]).norm())
    clipped = torch.stack([p.grad.norm().cpu() for p in parameters]).norm()
    assert clipped.item() == pytest.approx(0.1, rel=1e-4)


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_checkpointing_repeats_the_same_dropout(use_reentrant: bool) -> None:
    layers = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5), nn.Linear(8, 8)).to(DEVICE)
    x = torch.randn(4, 8, device=DEVICE, requires_grad=True)
    torch.manual_seed(3)
    (plain,) = torch.autograd.grad(layers(x).sum(), x)
    torch.manual_seed(3)
    checkpoint(layers, x, use_reentrant=use_reentrant).sum().backward()
    assert torch.equal(x.grad, plain)


def test_autocast_and_grad_scaler() -> None:
    model = nn.Linear(4, 4).to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("virtual", init_scale=8.0)
    x = torch.randn(2, 4, device=DEVICE)
    with torch.autocast("virtual", torch.float16):
        out = model(x)
        assert out.dtype == torch.float16
        assert torch.softmax(out, -1).dtype == torch.float32
        with pytest.raises(RuntimeError, match="unsafe to autocast"):
            nn.functional.binary_cross_entropy(out.sigmoid(), torch.ones_like(out))
        loss = out.float().sum()
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    assert torch.equal(model.bias.grad.cpu(), torch.full((4,), 2.0))
    before = model.weight.detach().clone()
    scaler.step(optimizer)
    assert not torch.equal(before, model.weight)
    model.weight.grad[0, 0] = float("inf")
    before = model.weight.detach().clone()
    scaler.update()
    scaler.scale(model(x).sum() * float("inf")).backward()
    scaler.step(optimizer)
    scaler.update()
    assert torch.equal(before, model.weight)
    assert scaler.get_scale() == 4.0


@torch.inference_mode()  # elsewhere autograd's own kernel returns the arguments itself
def test_results_are_the_arguments_of_their_alias_sets() -> None:
    x = torch.randn(6, device=DEVICE)
    values, indices = torch.empty(6, device=DEVICE), torch.empty(6, dtype=torch.long, device=DEVICE)
    returned = torch.ops.aten.topk.values(x, 6, values=values, indices=indices)
    assert returned[0] is values
    assert returned[1] is indices
    assert x.add_(1) is x


def test_compiled_model_runs_and_says_that_nothing_was_compiled() -> None:
    model, x = mlp().eval(), torch.randn(6, 16)
    expected = model(x)
    with pytest.warns(UserWarning, match="no code for virtual devices"):
        found = torch.compile(model.to(DEVICE))(x.to(DEVICE))
    found.sum().backward()
    assert torch.equal(found.cpu(), expected)
    assert model[0].weight.grad.device == torch.device(DEVICE)


def test_transformer_evaluates_with_padding() -> None:
    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
    model = nn.TransformerEncoder(layer, 2).eval()
    x = torch.randn(2, 5, 32)
    padding = torch.tensor([[0, 0, 0, 1, 1], [0, 0, 0, 0, 1]], dtype=torch.bool)
    with torch.no_grad():
        expected = model(x, src_key_padding_mask=padding)
        found = model.to(DEVICE)(x.to(DEVICE), src_key_padding_mask=padding.to(DEVICE))
    assert torch.equal(found.cpu(), expected)


@pytest.mark.parametrize(
    "use",
    [
        lambda: torch.eye(3, device=DEVICE).to_sparse(),
        lambda: torch.eye(3).to_sparse().to(DEVICE),
        lambda: torch.eye(3).to_sparse_csr().to(DEVICE) @ torch.ones(3, 3, device=DEVICE),
        lambda: nn.Embedding(3, 2, sparse=True).to(DEVICE)(torch.tensor(1, device=DEVICE)).sum().backward(),
    ],
)
def test_sparse_says_what_it_cannot_do(use: Callable[[], object]) -> None:
    with pytest.raises(NotImplementedError, match="virtual devices hold dense tensors"):
        use()
