"""Mistakes that people make, each as an edit of a correct program, and the checks that must fail for it.

A mistake has consequences: without no_sync() nothing else is wrong, but an undivided loss also makes the
gradient differ from that of one large batch. `fails` names all checks that fail, so that none fails falsely.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

PROGRAMS = Path(__file__).parent / "programs"


@dataclass(frozen=True)
class Mistake:
    name: str
    lab: str
    program: str  # a correct one
    edits: tuple[tuple[str, str], ...]  # text that occurs once → what stands there instead
    fails: frozenset[str]
    devices: int = 0  # virtual ones
    line: str = ""  # what the line that the first of `fails` names must contain


def mistake(
    name: str, lab: str, program: str, *edits: tuple[str, str], fails: str, line: str = "", devices: int = 0
) -> Mistake:
    return Mistake(name, lab, program, edits, frozenset(fails.split()), devices, line)


def write_script(wrong: Mistake, folder: Path) -> Path:
    source = (PROGRAMS / wrong.program).read_text()
    for old, new in wrong.edits:
        assert source.count(old) == 1, f"{wrong.name}: {old!r} occurs {source.count(old)} times"
        source = source.replace(old, new)
    path = folder / f"{wrong.name}.py"
    path.write_text(source)
    return path


FUNCTIONS, CLASS, DECORATED = "accumulation_functions.py", "both_class.py", "both_decorated.py"
AMP, EACH_STEP, DYNAMIC = "amp_plain.py", "ddp_each_step.py", "dynamic_blocks.py"

MISTAKES = (
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
    mistake(
        "last_step_divides_by_too_much",
        "practical7",
        FUNCTIONS,
        ("range(STEPS * ACCUM_STEPS)", "range(STEPS * ACCUM_STEPS + 2)"),
        (
            "(step + 1) % ACCUM_STEPS == 0\n",
            "(step + 1) % ACCUM_STEPS == 0 or step == STEPS * ACCUM_STEPS + 1\n",
        ),
        fails="loss_division",
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
    # Mixed precision.
    mistake(
        "autocast_missing",
        "hw2",
        CLASS,
        ('torch.autocast("cpu", dtype=torch.bfloat16)', "torch.enable_grad()"),
        fails="autocast_forward",
        line="self.model(x)",
    ),
    mistake(
        "autocast_around_loss_only",
        "hw2",
        CLASS,
        (
            '        with torch.autocast("cpu", dtype=torch.bfloat16):\n'
            "            return F.cross_entropy(self.model(x), y)",
            "        output = self.model(x)\n"
            '        with torch.autocast("cpu", dtype=torch.bfloat16):\n'
            "            return F.cross_entropy(output, y)",
        ),
        fails="autocast_forward",
        line="self.model(x)",
    ),
    mistake(
        "autocast_around_backward",
        "practical7",
        AMP,
        (
            "    loss = loss_fn(output.squeeze(-1).float(), y)\n    scaler",
            "        loss = loss_fn(output.squeeze(-1).float(), y)\n        scaler",
        ),
        fails="autocast_end",
        line="backward()",
    ),
    mistake(
        "backward_on_unscaled_loss",
        "practical7",
        AMP,
        ("    scaler.scale(loss).backward()", "    loss.backward()"),
        fails="run scaled_loss large_batch",  # the scaler refuses
        line="loss.backward()",
    ),
    mistake(
        "scaled_loss_not_used",
        "practical7",
        AMP,
        ("    scaler.scale(loss).backward()", "    scaler.scale(loss)\n    loss.backward()"),
        fails="scaled_loss large_batch",
        line="loss.backward()",
    ),
    mistake(
        "optimizer_step_directly",
        "practical7",
        AMP,
        ("    scaler.step(optimizer)\n    scaler.update()\n", "    optimizer.step()\n"),
        fails="scaler_step large_batch",
        line="optimizer.step()",
    ),
    mistake(
        "update_missing",
        "practical7",
        AMP,
        ("    scaler.update()\n", ""),
        fails="run scaler_update",
        line="scaler.step(optimizer)",
    ),
    mistake(
        "update_on_each_micro_step",
        "hw2",
        CLASS,
        (
            "backward()\n                continue",
            "backward()\n                self.scaler.update(512.0)\n                continue",
        ),
        fails="scaler_update large_batch",
        line="scaler.update(512.0)",
    ),
    mistake(
        "clips_scaled_gradients",
        "hw2",
        CLASS,
        ("            self.scaler.unscale_(self.optimizer)\n", ""),
        fails="unscale",
        line="clip_grad_norm_",
    ),
    mistake(
        "no_scaler",
        "hw2",
        DECORATED,
        ('scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)\n', ""),
        ("    scaler.scale(loss).backward()", "    loss.backward()"),
        ("    scaler.step(optimizer)\n    scaler.update()\n", "    optimizer.step()\n"),
        fails="scaled_loss",
        line="loss.backward()",
    ),
    mistake(
        "own_loss_not_divided",
        "hw2",
        DECORATED,
        ("x[:, :4]) / ACCUM_STEPS", "x[:, :4])"),
        fails="loss_division",
        line="backward()",
    ),
    # Timing.
    mistake(
        "warmup_counted",
        "hw1",
        EACH_STEP,
        ("times[5:]", "times"),
        fails="warmup",
        line="Average step time",
    ),
    mistake(
        "clock_stops_before_optimizer",
        "hw1",
        EACH_STEP,
        (
            "    optimizer.step()\n    times.append(time.time() - start)\n",
            "    times.append(time.time() - start)\n    optimizer.step()\n",
        ),
        fails="timing",
        line="time.time() - start",
    ),
    mistake(
        "prints_on_all_ranks",
        "hw1",
        EACH_STEP,
        ('    if rank == 0:\n        print(f"Step', '    if True:\n        print(f"Step'),
        fails="prints",
        line='print(f"Step',
    ),
    mistake(
        "too_few_steps",
        "hw1",
        EACH_STEP,
        ("range(36)", "range(20)"),
        fails="num_steps",
        line="optimizer.step()",
    ),
    mistake(
        "whole_batch_on_each_rank",
        "hw1",
        EACH_STEP,
        ("GLOBAL_BATCH // world", "GLOBAL_BATCH"),
        fails="global_batch",
        line="model(x)",
    ),
    mistake(
        "clock_starts_after_forward",
        "hw1",
        EACH_STEP,
        (
            "    start = time.time()\n    loss = loss_fn(model(x), y)\n",
            "    loss = loss_fn(model(x), y)\n    start = time.time()\n",
        ),
        fails="timing",
        line="start = time.time()",
    ),
    # Devices.
    mistake(
        "two_devices_by_number",
        "hw3",
        DYNAMIC,
        ("min(torch.accelerator.device_count(), DEPTH)", "2"),
        fails="even_split few_layers",
        line="nn.Linear(16, 16)",
        devices=3,
    ),
    mistake(
        "remainder_on_the_last_device",
        "hw3",
        DYNAMIC,
        ("(device < DEPTH % count)", "(device >= count - DEPTH % count)"),
        fails="even_split few_layers",
        line="nn.Linear(16, 16)",
        devices=3,
    ),
    mistake(
        "layers_take_turns",
        "hw3",
        DYNAMIC,
        (
            'nn.Linear(16, 16).to(f"{kind}:{device}")',
            'nn.Linear(16, 16).to(f"{kind}:{len(self.layers) % count}")',
        ),
        ("torch.device(kind, device))", "torch.device(kind, len(self.layer_devices) % count))"),
        fails="even_split few_layers",
        line="nn.Linear(16, 16)",
        devices=3,
    ),
    mistake(
        "data_goes_back_in_between",
        "hw3",
        DYNAMIC,
        ("            x = x.to(device)\n", "            x = x.to(self.layer_devices[0]).to(device)\n"),
        fails="moves",
        line="x = x.to(self.layer_devices[0]).to(device)",
        devices=3,
    ),
    mistake(
        "a_layer_left_out",
        "hw3",
        DYNAMIC,
        ("zip(self.layers, self.layer_devices, strict=True)", "zip(self.layers[1:], self.layer_devices[1:])"),
        fails="all_layers",
        line="model(x)",
        devices=3,
    ),
    mistake(
        "clock_read_without_waiting",
        "hw3",
        DYNAMIC,
        ("    torch.accelerator.synchronize()\n", ""),
        fails="waiting",
        line="time.perf_counter() - start",
        devices=3,
    ),
)
