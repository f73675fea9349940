"""One run of one program in one world: the schema that everything else reads and writes.

Ranks write their steps as rows (step_file.py) and the rest as JSON lines (`LINE_*`), the launcher folds
them into a `RunRecord`, the store keeps it, and analysis turns records into rows. Standard library only:
every rank imports this file.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

SCHEMA_VERSION = 1

Status = Literal["ok", "failed", "hung", "oom", "refused"]  # refused: by the machine, which lacks a device
Source = Literal["measured", "simulated"]
Severity = Literal["warning", "note"]

# The kinds of line in a rank's JSONL, under the key "event".
LINE_START = "start"  # what is known: before the script, with torch (threads), after a step (device)
LINE_SAMPLE = "sample"  # one fact from the sampled steps: {"fact": one of FACTS, "data": {...}}
LINE_NOTE = "note"  # something a person should hear: {"code", "text"}
LINE_EXCEPTION = "exception"  # what the script raised: type, message, traceback, line, step
LINE_END = "end"  # the last line of a rank that ended in order: {"reason": "steps done" | "script ended"}

# Step kinds, stored as the series "kind".
WARMUP, TIMED, SAMPLED = 0, 1, 2

# Per-step values of every rank, in the order of the steps, warm-up included. NaN means "not known".
STEP_METRICS = (
    "kind",  # WARMUP, TIMED or SAMPLED
    "end_s",  # perf_counter at the step's end; one clock for all ranks of one machine
    "wall_s",  # time.time() at the step's end: what the course's handout would read
    "step_time_s",  # end of the previous optimizer step → end of this one
    "data_s",  # before the model is called: loading, copying, zeroing
    "dataloader_s",  # the part of data_s spent inside a DataLoader
    "forward_s",  # model called → backward called (the loss function included)
    "backward_s",
    "optimizer_s",
    "other_s",  # the rest: unscaling, clipping, logging
    "micro_steps",  # backward calls in this step
    "cpu_s",  # CPU seconds of the whole process in this step
    "page_faults",
    "voluntary_switches",
    "involuntary_switches",
    "foreign_cores",  # how many cores' worth of this rank's cores others used (NaN between host readings)
    "steal_cores",  # cores' worth taken by the hypervisor
    "loss",  # sum over micro-steps of what backward was called on, unscaled
    "loss_scale",  # GradScaler's scale, NaN without a scaler
    "skipped",  # 1 where GradScaler skipped the optimizer step
)

# What the sampled steps yield, per rank; the keys of each are listed in docs/metrics.md.
FACTS = ("communication", "memory", "precision", "gradients", "batch", "devices", "timeline")


@dataclass
class RankRecord:
    """What one rank saw."""

    rank: int
    start: dict[str, Any] = field(default_factory=dict)  # the LINE_START objects as one
    series: dict[str, list[float]] = field(default_factory=dict)  # name in STEP_METRICS → one value per step
    facts: dict[str, dict[str, Any]] = field(default_factory=dict)  # name in FACTS → data
    notes: list[dict[str, Any]] = field(default_factory=list)  # LINE_NOTE objects
    end: str | None = None  # why the rank ended, None when it did not end in order


@dataclass
class RunRecord:
    """One launch of one configuration, ended: the unit that the store appends."""

    key: str  # content hash of all that decides the result, the round included
    study: str
    program: str  # as the user typed it
    arguments: list[str]
    world: int
    placement: str  # "tuned" or "plain"
    round: int
    status: Status
    source: Source = "measured"
    cause: str | None = None  # one sentence for a person; None when status is "ok"
    failed_rank: int | None = None
    last_line: str | None = None  # the last line of that rank's output that matters
    traceback: str | None = None  # the whole of it
    oversubscribed: bool = False  # more ranks than cores (or accelerators)
    started: float = 0.0  # unix time
    wall_s: float = 0.0  # launch → everything gone
    command: list[str] = field(default_factory=list)  # exactly what was executed
    script_hash: str = ""
    git_commit: str | None = None  # with "+" behind it when the tree had changes
    options: dict[str, Any] = field(default_factory=dict)  # steps, warmup, timeout_s …
    environment: dict[str, str] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    machine: dict[str, Any] = field(default_factory=dict)
    ranks: list[RankRecord] = field(default_factory=list)

    @property
    def accelerators(self) -> list[dict[str, Any]]:
        """Those that its ranks could use: none where the script did not see them, or left them alone."""
        if self.options.get("device") == "cpu" or self.options.get("virtual_devices"):
            return []
        if self.ranks and all(rank.start.get("device") == "cpu" for rank in self.ranks):
            return []
        return list((self.machine.get("accelerators") or {}).get("devices") or [])


@dataclass(frozen=True)
class Metric:
    """A number a person may compare: the median, its 95 % interval, and how many values it rests on."""

    median: float
    low: float
    high: float
    n: int
    unit: str


@dataclass(frozen=True)
class Finding:
    """One entry of the closed list of conclusions: `explain.py` says which codes there are."""

    code: str
    text: str  # the fact, then the likely cause, then what to do
    numbers: dict[str, float]  # what it rests on
    severity: Severity = "note"


@dataclass(frozen=True)
class LaunchNoise:
    """How much launches differ, as far as other rows tell."""

    variance: float = 0.0  # of the logarithm of a launch's median
    freedom: float = 0.0  # what that is worth, in launches; 0: nothing is known

    def __add__(self, other: LaunchNoise) -> LaunchNoise:
        """Of a ratio between a launch of the one and a launch of the other."""
        return LaunchNoise(self.variance + other.variance, min(self.freedom, other.freedom))


@dataclass
class Row:
    """One configuration (program × arguments × world × placement), all its rounds together."""

    program: str
    arguments: list[str]
    world: int
    placement: str
    status: Status
    source: Source = "measured"
    cause: str | None = None
    oversubscribed: bool = False
    rounds: int = 0
    launch_noise: LaunchNoise = LaunchNoise()
    metrics: dict[str, Metric] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)
