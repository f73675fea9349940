"""From a lab to what is run: every configuration of a scale, and the studies that measure them.

In: a `Lab`, a scale, perhaps a task and an option, and what the machine has. Out: configurations, each with
its study or the reason why it cannot run. Exercise: `pytest tests/unit/test_lab_spec.py`.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from paceline.labs.fit import refuse_too_large
from paceline.labs.spec import Change, Experiment, Lab, ScaleName, Value
from paceline.study import Config, Options, Study


@dataclass(frozen=True)
class Host:
    """What a machine has for a lab."""

    accelerators: int = 0
    memory_bytes: int | None = None  # of the machine, or of each accelerator where there are two or more
    no_virtual: str | None = None  # why it cannot have virtual devices


@dataclass(frozen=True)
class Planned:
    """One configuration of one experiment, and why it cannot run where it cannot."""

    experiment: Experiment
    config: Config
    study: str  # where its runs are kept
    virtual_devices: int = 0
    refusal: str | None = None


def skipped(experiment: Experiment, scale: ScaleName) -> str | None:
    """The reason why this scale leaves the experiment out, None when it does not."""
    change = experiment.scales.get(scale)
    return change.skip if change else None


def configs_of(lab: Lab, scale: ScaleName, experiment: Experiment) -> list[Config]:
    """Every configuration of one experiment. Equal ones of two experiments are equal, and run once."""
    change = experiment.scales.get(scale, Change())
    if change.skip:
        return []
    fixed = experiment.arguments | change.arguments
    if experiment.kind != "table":
        fixed = {"steps": lab.scales[scale].script_steps} | fixed
    sweep = experiment.sweep | change.sweep
    worlds = change.worlds or experiment.worlds
    return [
        Config(
            program=str((lab.folder / experiment.program).resolve()),
            arguments=_as_arguments(fixed | dict(zip(sweep, values, strict=True))),
            world=world,
            placement=placement,
        )
        for values in itertools.product(*sweep.values())
        for placement, world in itertools.product(experiment.placement, worlds)
    ]


def plan(
    lab: Lab, scale: ScaleName, task: str | None = None, option: str | None = None, host: Host | None = None
) -> list[Planned]:
    """What a task (all of them for None) measures on a machine.

    Two accelerators are enough to use the real ones, and what needs more of them than there are is refused:
    times of virtual devices beside real ones would compare nothing.
    """
    host = host or Host()
    planned = []
    for chosen in lab.tasks if task is None else [lab.task(task)]:
        for experiment in chosen.experiments:
            if option is not None and experiment.option not in (None, option):
                continue
            virtual = host.accelerators < 2 and experiment.devices > 0
            for config in configs_of(lab, scale, experiment):
                planned.append(
                    Planned(
                        experiment,
                        config,
                        study=_study_name(lab, scale, experiment, virtual),
                        virtual_devices=experiment.devices if virtual else 0,
                        refusal=_refuse(experiment, config, host),
                    )
                )
    return planned


def _refuse(experiment: Experiment, config: Config, host: Host) -> str | None:
    if experiment.kind == "table":
        return None
    needed = devices_of(experiment, config)
    if host.accelerators >= 2 and needed > host.accelerators:
        return f"needs {needed} accelerators, this machine has {host.accelerators}"
    if host.accelerators >= 2 and experiment.link:
        return "emulates a link between virtual devices; these devices are real"
    if host.accelerators < 2 and experiment.devices and host.no_virtual:
        return host.no_virtual
    if host.memory_bytes is None:
        return None
    return refuse_too_large(config, needed, host.memory_bytes, on_devices=host.accelerators >= 2)


def studies_for(
    lab: Lab, scale: ScaleName, task: str | None = None, option: str | None = None, host: Host | None = None
) -> list[Study]:
    """The studies that measure a task, or the whole lab; a task's runs are the whole lab's runs."""
    chosen = lab.scales[scale]
    groups: dict[str, tuple[Options, int, dict[Config, None]]] = {}
    for planned in plan(lab, scale, task, option, host):
        experiment = planned.experiment
        if planned.refusal or experiment.kind == "table":
            continue
        options = Options(
            steps=chosen.steps,
            warmup=chosen.warmup,
            sampled=chosen.sampled,
            timeout_s=chosen.timeout_s,
            # A rank takes an accelerator of its own: with one alone, worlds of one and of two ranks would
            # compare different devices.
            device="cpu" if host is not None and host.accelerators == 1 else "auto",
            virtual_devices=planned.virtual_devices,
            virtual_link=experiment.link if planned.virtual_devices else None,
        )
        rounds = max(chosen.rounds, experiment.min_rounds)
        known = groups.setdefault(planned.study, (options, rounds, {}))
        if known[0] != options:
            raise ValueError(
                f"{lab.name}: the experiments of {planned.study} differ in devices or link;"
                f" {experiment.id} must say the same as the others"
            )
        known[2][planned.config] = None
    # The cores of a rank must not depend on which task is measured, or tasks could not share runs.
    largest: dict[str, int] = {}
    for planned in plan(lab, scale, host=host):
        if not planned.refusal:
            largest[planned.study] = max(largest.get(planned.study, 1), planned.config.world)
    return [
        Study(name, list(configs), rounds=rounds, options=options, largest_world=largest[name])
        for name, (options, rounds, configs) in groups.items()
    ]


def _study_name(lab: Lab, scale: ScaleName, experiment: Experiment, virtual: bool) -> str:
    """A study gives each rank the same cores. One process that drives all devices gets all cores, so it
    must not share a study with worlds of several ranks."""
    more_rounds = experiment.kind != "table" and experiment.min_rounds > lab.scales[scale].rounds
    parts = [
        lab.name,
        scale,
        experiment.kind if experiment.kind != "ranks" else "",
        "virtual" if virtual else "",
        "link" if virtual and experiment.link else "",
        f"{experiment.min_rounds}-rounds" if more_rounds else "",
    ]
    return "-".join(part for part in parts if part)


def devices_of(experiment: Experiment, config: Config) -> int:
    """Accelerators that a configuration uses on one machine."""
    if experiment.kind == "ranks":
        return config.world
    wanted = dict(itertools.pairwise(config.arguments)).get("--devices")
    return int(wanted) if wanted else experiment.uses or experiment.devices


def _as_arguments(values: dict[str, Value]) -> tuple[str, ...]:
    """Sorted by name, so that two experiments that mean the same configuration share its runs."""
    words: list[str] = []
    for name, value in sorted(values.items()):
        if value is True:
            words.append(f"--{name}")
        elif value is not False:
            words += [f"--{name}", f"{value}"]
    return tuple(words)
