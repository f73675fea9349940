"""Mistakes in mixed precision."""

from __future__ import annotations

from tests.check.mistake import mistake

CLASS = "both_class.py"
DECORATED = "both_decorated.py"
AMP = "amp_plain.py"

PRECISION = (
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
    mistake(
        "divides_by_the_first_of_several",
        "hw2",
        CLASS,
        (
            "F.cross_entropy(self.model(x), y) / self.accumulation_steps",
            "F.cross_entropy(self.model(x), y) / 4",
        ),
        (
            "    Trainer(parser.parse_args()).train(loader)",
            "    for steps in (4, 8):\n"
            '        Trainer(parser.parse_args(["--accumulation-steps", str(steps)])).train(loader)',
        ),
        fails="loss_division",
        line="backward()",
    ),
)
