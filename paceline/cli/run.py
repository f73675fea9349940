"""`paceline run`: measure any training script, unmodified, in worlds of several sizes.

In: options, a script, and the script's own arguments. Out: what cli/measuring.py shows.
Exercise: `paceline run --nproc 1,2 examples/train.py --dim 256`.
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from paceline.cli.options import (
    DEFAULT_STORE,
    Fresh,
    JsonFile,
    Retry,
    StorePath,
    Verbose,
    parse_worlds,
    split_list,
)
from paceline.quantity import parse_duration_s, parse_share
from paceline.study import Options, build_study, expand, parse_sweeps

DEFAULTS = Options()

# The headings of the help text, as in docs/commands.md.
WHAT, MEASURED, OFTEN = "What runs", "What is measured", "How often"
VIRTUAL, NODES = "Virtual accelerators", "Several machines"


def add_to(app: typer.Typer) -> None:
    # Whatever follows SCRIPT is the script's, also where it looks like an option of ours.
    app.command(context_settings={"allow_interspersed_args": False})(run)


def run(
    script: Annotated[str, typer.Argument(metavar="SCRIPT", help="The training script, unmodified.")],
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="ARGS", help="All that follows is the script's.")
    ] = None,
    nproc: Annotated[
        str, typer.Option(help="Worlds to run, such as 1,2,4: ranks on this machine.", rich_help_panel=WHAT)
    ] = "1",
    sweep: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=V,V",
            help="Append --NAME V to the script's arguments; several multiply.",
            rich_help_panel=WHAT,
        ),
    ] = None,
    placement: Annotated[
        str,
        typer.Option(
            metavar="tuned,plain",
            help="tuned: pinned ranks, kept memory; plain: torchrun alone.",
            rich_help_panel=WHAT,
        ),
    ] = "tuned",
    name: Annotated[
        str | None,
        typer.Option(
            "--name", help="Name of the study.", show_default="the script's name", rich_help_panel=WHAT
        ),
    ] = None,
    steps: Annotated[
        int, typer.Option(help="Measured steps after the warm-up.", rich_help_panel=MEASURED)
    ] = DEFAULTS.steps,
    warmup: Annotated[
        int, typer.Option(help="Steps that are shown but not counted.", rich_help_panel=MEASURED)
    ] = DEFAULTS.warmup,
    sampled: Annotated[
        int,
        typer.Option(
            help="Steps after those that look at communication and memory.", rich_help_panel=MEASURED
        ),
    ] = DEFAULTS.sampled,
    to_end: Annotated[
        bool,
        typer.Option(
            "--to-end",
            help="Let the script finish instead of ending it when all is measured.",
            rich_help_panel=MEASURED,
        ),
    ] = False,
    step_marker: Annotated[
        str,
        typer.Option(
            metavar="auto|mark|CLASS",
            help="What ends a step: found out, mark_step(), an optimizer.",
            rich_help_panel=MEASURED,
        ),
    ] = DEFAULTS.step_marker,
    rounds: Annotated[
        int | None,
        typer.Option(
            help="Repeat everything this often, interleaved.", show_default="3", rich_help_panel=OFTEN
        ),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option(
            metavar="SHARE", help="Repeat until every ratio is known to, say, 3%.", rich_help_panel=OFTEN
        ),
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Begin no round that would end later, such as 10m.",
            show_default="10m with --until",
            rich_help_panel=OFTEN,
        ),
    ] = None,
    timeout: Annotated[
        str,
        typer.Option(
            metavar="TIME", help="A world that does nothing for so long is hung.", rich_help_panel=MEASURED
        ),
    ] = f"{DEFAULTS.timeout_s:g}s",
    device: Annotated[
        str,
        typer.Option(
            metavar="auto|cpu",
            help="cpu: hide the machine's accelerators from the script.",
            rich_help_panel=WHAT,
        ),
    ] = DEFAULTS.device,
    virtual: Annotated[
        int,
        typer.Option(metavar="N", help="Give the script N virtual accelerators.", rich_help_panel=VIRTUAL),
    ] = DEFAULTS.virtual_devices,
    virtual_memory: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="Memory of each, such as 8GiB.", rich_help_panel=VIRTUAL),
    ] = None,
    virtual_link: Annotated[
        str | None,
        typer.Option(
            metavar="RATE,LATENCY", help="Link between them, such as 12GB/s,5us.", rich_help_panel=VIRTUAL
        ),
    ] = None,
    virtual_as_cuda: Annotated[
        bool,
        typer.Option("--virtual-as-cuda", help="For scripts that say cuda by name.", rich_help_panel=VIRTUAL),
    ] = False,
    nnodes: Annotated[
        str, typer.Option(help="Passed on to torchrun: number of machines.", rich_help_panel=NODES)
    ] = DEFAULTS.nnodes,
    node_rank: Annotated[
        int | None, typer.Option(help="Passed on to torchrun.", rich_help_panel=NODES)
    ] = None,
    rdzv_endpoint: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT", help="Passed on to torchrun: where the machines meet.", rich_help_panel=NODES
        ),
    ] = None,
    rdzv_id: Annotated[
        str | None, typer.Option(metavar="ID", help="Passed on to torchrun.", rich_help_panel=NODES)
    ] = None,
    rdzv_conf: Annotated[
        str | None, typer.Option(metavar="K=V,K=V", help="Passed on to torchrun.", rich_help_panel=NODES)
    ] = None,
    local_addr: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Passed on to torchrun.", rich_help_panel=NODES)
    ] = None,
    store: StorePath = DEFAULT_STORE,
    json: JsonFile = None,
    fresh: Fresh = False,
    retry: Retry = False,
    verbose: Verbose = False,
) -> None:
    """Measure a training script under torchrun, with a probe in every rank.

    The same command again runs only what is missing. It ends with 0 when every configuration was measured,
    1 when some have no good run, 2 for a mistake in the command and 130 after Ctrl-C.
    """
    study = build_study(
        expand(
            script,
            arguments or [],
            parse_worlds(nproc),
            parse_sweeps(sweep or []),
            split_list("--placement", placement),
        ),
        name=name,
        rounds=rounds,
        until=None if until is None else parse_share(until),
        budget_s=None if budget is None else parse_duration_s(budget),
        options=Options(
            steps=steps,
            warmup=warmup,
            sampled=sampled,
            to_end=to_end,
            step_marker=step_marker,
            timeout_s=parse_duration_s(timeout),
            device=device,
            virtual_devices=virtual,
            virtual_memory=virtual_memory,
            virtual_link=virtual_link,
            virtual_as_cuda=virtual_as_cuda,
            nnodes=nnodes,
            node_rank=node_rank,
            rdzv_endpoint=rdzv_endpoint,
            rdzv_id=rdzv_id,
            rdzv_conf=rdzv_conf,
            local_addr=local_addr,
        ),
    )
    _say_what_went_to_the_script(script, arguments or [])
    # numpy and scipy come with it: not for `--help`, and not for a mistake above.
    from paceline.cli.measuring import describe_command, measure_and_show

    measure_and_show(
        study, describe_command(), store_path=store, json_file=json, fresh=fresh, retry=retry, verbose=verbose
    )


def _say_what_went_to_the_script(script: str, arguments: list[str]) -> None:
    """A script may have options of these names too, so it is no mistake; but it mostly is one."""
    ours = [
        word
        for word in arguments
        if word.partition("=")[0] in ("--nproc", "--rounds", "--placement", "--until")
    ]
    if ours:
        text = (
            f"{ours[0]} stands behind {script} and goes to it; Paceline's own options stand before the script"
        )
        print(f"paceline: {text}", file=sys.stderr)
