"""Mistakes in gradient accumulation, and in what ranks share."""

from __future__ import annotations

from tests.check.mistake import mistake

FUNCTIONS = "accumulation_functions.py"

RANKS = (
    # Accumulation.
    mistake(
        "loss_not_divided",
        "practical7",
        FUNCTIONS,
        ("loss_fn(output, y) / ACCUM_STEPS", "loss_fn(output, y)"),
        fails="loss_division large_batch",
        line="loss.backward()",
    ),
    mistake(
        "loss_divided_twice",
        "practical7",
        FUNCTIONS,
        ("            loss.backward()", "            loss = loss / ACCUM_STEPS\n            loss.backward()"),
        fails="loss_division large_batch",
        line="loss.backward()",
    ),
    mistake(
        "loss_divided_past_autograd",
        "practical7",
        FUNCTIONS,
        (
            "loss = loss_fn(output, y) / ACCUM_STEPS",
            "loss = loss_fn(output, y)\n            loss.data /= ACCUM_STEPS",
        ),
        fails="large_batch",
        line="optimizer.step()",
    ),
    mistake(
        "no_sync_around_backward_only",
        "practical7",
        FUNCTIONS,
        (
            "        with contextlib.nullcontext() if last else model.no_sync():\n"
            "            output = model(x)\n"
            "            loss = loss_fn(output, y) / ACCUM_STEPS\n",
            "        output = model(x)\n"
            "        loss = loss_fn(output, y) / ACCUM_STEPS\n"
            "        with contextlib.nullcontext() if last else model.no_sync():\n",
        ),
        fails="synchronisation",
        line="output = model(x)",
    ),
    mistake(
        "no_no_sync",
        "practical7",
        FUNCTIONS,
        ("contextlib.nullcontext() if last else model.no_sync()", "contextlib.nullcontext()"),
        fails="synchronisation",
        line="output = model(x)",
    ),
    mistake(
        "never_synchronises",
        "practical7",
        FUNCTIONS,
        ("contextlib.nullcontext() if last else model.no_sync()", "model.no_sync()"),
        fails="synchronisation same_weights large_batch",
        line="output = model(x)",
    ),
    mistake(
        "synchronises_first_micro_step",
        "practical7",
        FUNCTIONS,
        ("nullcontext() if last else", "nullcontext() if step % ACCUM_STEPS == 0 else"),
        fails="synchronisation same_weights large_batch",
        line="output = model(x)",
    ),
    mistake(
        "optimizer_on_each_micro_step",
        "practical7",
        FUNCTIONS,
        ("        if last:\n            optimizer.step()", "        optimizer.step()\n        if True:"),
        fails="accumulation synchronisation same_weights large_batch",
        line="optimizer.step()",
    ),
    mistake(
        "optimizer_one_micro_step_early",
        "practical7",
        FUNCTIONS,
        ("        if last:", "        if step % ACCUM_STEPS == 0:"),
        fails="accumulation synchronisation same_weights large_batch",
        line="optimizer.step()",
    ),
    mistake(
        "zero_grad_on_each_micro_step",
        "practical7",
        FUNCTIONS,
        ("            optimizer.zero_grad()\n", ""),
        ("            output = model(x)", "            optimizer.zero_grad()\n            output = model(x)"),
        fails="zero_grad large_batch",
        line="optimizer.zero_grad()",
    ),
    mistake(
        "zero_grad_never",
        "practical7",
        FUNCTIONS,
        ("            optimizer.zero_grad()\n", ""),
        fails="zero_grad large_batch",
        line="optimizer.step()",
    ),
    mistake(
        "zero_grad_before_step",
        "practical7",
        FUNCTIONS,
        (
            "            optimizer.step()\n            optimizer.zero_grad()\n",
            "            optimizer.zero_grad()\n            optimizer.step()\n",
        ),
        fails="zero_grad large_batch",
        line="optimizer.zero_grad()",
    ),
    mistake(
        "last_micro_steps_lost",
        "practical7",
        FUNCTIONS,
        ("range(STEPS * ACCUM_STEPS)", "range(STEPS * ACCUM_STEPS + 2)"),
        fails="accumulation",
        line="loss.backward()",
    ),
    # Ranks.
    mistake(
        "same_data_on_all_ranks",
        "practical7",
        FUNCTIONS,
        ("torch.manual_seed(100 + rank)", "torch.manual_seed(100)"),
        fails="different_data",
        line="output = model(x)",
    ),
    mistake(
        "different_weights_without_ddp",
        "practical7",
        FUNCTIONS,
        ("model = DDP(build_model())", "torch.manual_seed(rank)\n    model = build_model()"),
        ("contextlib.nullcontext() if last else model.no_sync()", "contextlib.nullcontext()"),
        fails="ddp same_start same_weights synchronisation large_batch",
        line="output = model(x)",
    ),
    mistake(
        "forward_around_ddp",
        "practical7",
        FUNCTIONS,
        ("output = model(x)", "output = model.module(x)"),
        fails="ddp same_weights synchronisation large_batch",
        line="output = model.module(x)",
    ),
    mistake(
        "forward_around_ddp_within_a_module",
        "hw1",
        "ddp_each_step.py",
        (
            "loss_fn = nn.MSELoss()\n",
            "class Holder(nn.Module):\n"
            "    def __init__(self, inner):\n"
            "        super().__init__()\n"
            "        self.inner = inner\n\n"
            "    def forward(self, x):\n"
            "        return self.inner.module(x)\n\n\n"
            "model = Holder(model)\n"
            "loss_fn = nn.MSELoss()\n",
        ),
        fails="ddp same_weights synchronisation large_batch",
        line="model(x)",
    ),
    mistake(
        "averages_the_loss_alone",  # all ranks have the same seed and data, as homework 1 asks
        "hw1",
        "ddp_each_step.py",
        ("nn.parallel.DistributedDataParallel(nn.Sequential", "(nn.Sequential"),
        ("torch.manual_seed(1 + rank)\n", ""),
        ("    loss.backward()\n", "    loss.backward()\n    dist.all_reduce(loss.detach())\n"),
        fails="synchronisation ddp",
        line="model(x)",
    ),
    mistake(
        "no_seed",
        "practical7",
        FUNCTIONS,
        ("    torch.manual_seed(0)\n", ""),
        ("    torch.manual_seed(100 + rank)\n", ""),
        fails="seeds",
        line="nn.Sequential",
    ),
    mistake(
        "seed_after_the_model",
        "practical7",
        FUNCTIONS,
        ("    torch.manual_seed(0)\n", ""),
        fails="seeds",
        line="nn.Sequential",
    ),
    mistake(
        "process_group_left",
        "practical7",
        FUNCTIONS,
        ("    dist.destroy_process_group()\n", ""),
        fails="process_group",
        line="dist.init_process_group",
    ),
    mistake(
        "raises",
        "practical7",
        FUNCTIONS,
        (
            "        x, y = inputs",
            "        if step == 9:\n            raise KeyError('batch')\n        x, y = inputs",
        ),
        fails="run",
        line="raise KeyError",
    ),
)
