"""Mistakes in timing, and in spreading a model over devices."""

from __future__ import annotations

from tests.check.mistake import mistake

EACH_STEP = "ddp_each_step.py"
DYNAMIC = "dynamic_blocks.py"

TIMING = (
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
        "clock_stops_before_optimizer_in_a_mean",
        "hw1",
        EACH_STEP,
        (
            "    optimizer.step()\n    times.append(time.time() - start)\n",
            "    times.append(time.time() - start)\n    optimizer.step()\n",
        ),
        ('        print(f"Step {step}: {times[-1]:.6f} s")\n', "        pass\n"),
        fails="timing",
        line="time.time() - start",
    ),
    mistake(
        "times_the_processor",
        "hw1",
        EACH_STEP,
        ("    start = time.time()", "    start = time.process_time()"),
        ("time.time() - start", "time.process_time() - start"),
        fails="timing",
        line="time.process_time()",
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
