"""Other ways to write a correct program, each as an edit of one: nothing may fail for them.

`unknown` names what cannot be told that could be told before.
"""

from __future__ import annotations

from dataclasses import dataclass

from tests.check.mistake import Edited

FUNCTIONS = "accumulation_functions.py"
WITHOUT_DDP = (
    ("model = DDP(build_model())", "model = build_model()"),
    ("contextlib.nullcontext() if last else model.no_sync()", "contextlib.nullcontext()"),
)


@dataclass(frozen=True)
class Style(Edited):
    unknown: frozenset[str]


def style(name: str, lab: str, program: str, *edits: tuple[str, str], unknown: str = "") -> Style:
    return Style(name, lab, program, edits, frozenset(unknown.split()))


STYLES = (
    style(
        "functional_dropout",
        "practical7",
        FUNCTIONS,
        (
            "def build_model():\n    return nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))",
            "class Dropped(nn.Linear):\n"
            "    def forward(self, x):\n"
            "        return nn.functional.dropout(super().forward(x), 0.2, self.training)\n\n\n"
            "def build_model():\n"
            "    return nn.Sequential(Dropped(16, 32), nn.ReLU(), nn.Linear(32, 4))",
        ),
        unknown="large_batch",
    ),
    style(
        "regularised",
        "practical7",
        FUNCTIONS,
        (
            "loss = loss_fn(output, y) / ACCUM_STEPS",
            "size = sum(weight.square().sum() for weight in model.parameters())\n"
            "            loss = (loss_fn(output, y) + 1e-3 * size) / ACCUM_STEPS",
        ),
        unknown="large_batch",
    ),
    style(
        "sweeps_with_everything_new",
        "hw2",
        "both_class.py",
        (
            "    Trainer(parser.parse_args()).train(loader)",
            "    for steps in (2, 4, 8):\n"
            '        Trainer(parser.parse_args(["--accumulation-steps", str(steps)])).train(loader)',
        ),
    ),
    style(
        "sweeps_on_with_the_same_model",
        "practical7",
        FUNCTIONS,
        (
            "    for step in range(STEPS * ACCUM_STEPS):",
            "    global ACCUM_STEPS\n    for step in range(96):\n        ACCUM_STEPS = 2 if step < 48 else 4",
        ),
    ),
    style(
        "prints_the_mean_of_all_steps_too",
        "hw1",
        "ddp_each_step.py",
        ("steady = times[5:]", "steady = times[10:]"),
        (
            "dist.destroy_process_group()",
            'print(f"With warm-up: {1e3 * sum(times) / len(times):.8f} ms, {sum(times):.8f} s in all"'
            ' if rank == 0 else "")\n'
            "dist.destroy_process_group()",
        ),
    ),
    style(
        "prints_the_time_of_the_whole_script",
        "hw1",
        "ddp_whole_loop.py",
        ("def main():\n", "def main():\n    program = perf_counter()\n"),
        (
            "elapsed / 40 * 1000)",
            'elapsed / 40 * 1000)\n        print("whole script:", perf_counter() - program, "s")',
        ),
    ),
    style(
        "averages_gradients_in_place",
        "practical7",
        FUNCTIONS,
        *WITHOUT_DDP,
        (
            "            optimizer.step()\n",
            "            for weight in model.parameters():\n"
            "                dist.all_reduce(weight.grad)\n"
            "                weight.grad /= dist.get_world_size()\n"
            "            optimizer.step()\n",
        ),
        unknown="ddp",
    ),
    style(
        "averages_a_copy_of_all_gradients",
        "practical7",
        FUNCTIONS,
        *WITHOUT_DDP,
        (
            "            optimizer.step()\n",
            "            flat = torch.cat([weight.grad.flatten() for weight in model.parameters()])\n"
            "            dist.all_reduce(flat)\n"
            "            flat /= dist.get_world_size()\n"
            "            torch.nn.utils.vector_to_parameters(\n"
            "                flat, [weight.grad for weight in model.parameters()]\n"
            "            )\n"
            "            optimizer.step()\n",
        ),
        unknown="ddp",
    ),
    style(
        "averages_gathered_copies",
        "practical7",
        FUNCTIONS,
        *WITHOUT_DDP,
        (
            "            optimizer.step()\n",
            "            for weight in model.parameters():\n"
            "                copies = [torch.empty_like(weight) for _ in range(dist.get_world_size())]\n"
            "                dist.all_gather(copies, weight.grad.clone())\n"
            "                weight.grad = sum(copies) / len(copies)\n"
            "            optimizer.step()\n",
        ),
        unknown="ddp",
    ),
    style(
        "ddp_within_a_module",
        "hw1",
        "ddp_each_step.py",
        (
            "loss_fn = nn.MSELoss()\n",
            "\n\nclass Holder(nn.Module):\n"
            "    def __init__(self, inner):\n"
            "        super().__init__()\n"
            "        self.inner = inner\n"
            "        self.last = nn.Identity()\n\n"
            "    def forward(self, x):\n"
            "        return self.last(self.inner(x))\n\n\n"
            "model = Holder(model)\n"
            "loss_fn = nn.MSELoss()\n",
        ),
    ),
    style(
        "ddp_compiled",
        "hw1",
        "ddp_each_step.py",
        (
            "loss_fn = nn.MSELoss()\n",
            'model = torch.compile(model, backend="eager")\nloss_fn = nn.MSELoss()\n',
        ),
    ),
)
