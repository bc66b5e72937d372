"""The `graphstrap` program: its verbs, what a signal does to a verb, and exit codes."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from inspect import getdoc
from types import FrameType
from typing import Annotated, Any

import typer
import typer.main
from typer.core import TyperGroup

from graphstrap.errors import DivergedError, InputError, InterruptedTrainingError, LostWorkerError
from graphstrap.io.registry import Registry

Verb = Callable[..., None] | typer.Typer

# A verb's file imports PyTorch and the like inside its function: --help shows every verb at once.
_MAKE = ("demo", "datasets", "fit", "resume", "embed", "predict", "prepare")
_LOOK = ("evaluate", "neighbors", "report", "card", "info")
VERBS: Registry[Verb] = Registry(
    "verb", group="graphstrap.verbs", own={name: f"graphstrap.cli.{name}:{name}" for name in _MAKE + _LOOK}
)
LAB_VERBS = ("bench", "reproduce")  # of the package graphstrap-lab


class _Program(TyperGroup):
    """The group of all verbs, each imported when it is called."""

    def list_commands(self, ctx: Any) -> list[str]:
        return VERBS.names()

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in VERBS:
            if ctx.resilient_parsing:  # a shell that completes
                return None
            if cmd_name in LAB_VERBS:
                raise InputError(
                    f"`{cmd_name}` is a verb of the package graphstrap-lab: `pip install graphstrap-lab`, "
                    "or `pip install ./lab` in a checkout"
                )
        verb, host = VERBS.get(cmd_name), typer.Typer(rich_markup_mode=None)
        if isinstance(verb, typer.Typer):
            host.add_typer(verb, name=cmd_name)
        else:  # fit refuses a second source itself, and says what to do
            host.command(cmd_name, context_settings={"allow_extra_args": cmd_name == "fit"})(verb)
        return typer.main.get_group(host).commands[cmd_name]

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """One line about each verb. A plugin is not imported for it."""
        lines = []
        for name in VERBS:
            if VERBS.is_own(name):
                lines.append((name, (getdoc(VERBS.get(name)) or "").partition("\n\n")[0].replace("\n", " ")))
            else:
                lines.append((name, f"Added by {VERBS.origin(name)}."))
        with formatter.section("Commands"):
            formatter.write_dl(lines)

    def invoke(self, ctx: Any) -> Any:
        """Run a verb. Ctrl-C or SIGTERM ends it with one sentence and the usual exit code."""
        in_main = threading.current_thread() is threading.main_thread()
        terminated = False  # remembered: a library may turn the KeyboardInterrupt into another one

        def terminate(number: int, frame: FrameType | None) -> None:
            nonlocal terminated
            terminated = True
            raise KeyboardInterrupt

        before = signal.signal(signal.SIGTERM, terminate) if in_main else None
        try:
            return super().invoke(ctx)
        except InterruptedTrainingError as stop:  # training has ended its step first
            print(f"graphstrap: {stop}", file=sys.stderr)
            raise typer.Exit(130) from stop
        except KeyboardInterrupt as stop:
            print("graphstrap: stopped; no half-written file is left", file=sys.stderr)
            raise typer.Exit(143 if terminated else 130) from stop
        finally:
            if in_main:
                signal.signal(signal.SIGTERM, before)


def _print_version(wanted: bool) -> None:
    if wanted:
        from graphstrap.run.environment import graphstrap_version

        print(f"graphstrap {graphstrap_version()}")
        raise typer.Exit


app = typer.Typer(
    cls=_Program, no_args_is_help=True, add_completion=True, pretty_exceptions_enable=False, rich_markup_mode=None
)


@app.callback()
def program(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Learn node embeddings of any graph without labels, by bootstrapping (BGRL)."""


def run(arguments: list[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    if "GRAPHSTRAP_PARENT" in os.environ:  # a worker, or training that is supervised
        from graphstrap.train.parallel.workers import end_with_parent

        end_with_parent()
    given = sys.argv[1:] if arguments is None else arguments
    try:
        for name in ("--edges", "--nodes"):  # the last would silently be the only one
            if sum(word.partition("=")[0] == name for word in given) > 1:
                raise InputError(f"{name} is given twice: write them into one, or name all by a pattern (*.csv)")
        app(args=given, obj=list(given), prog_name="graphstrap")
    except SystemExit as finished:
        return int(finished.code or 0)
    except (InputError, DivergedError) as error:
        print(f"graphstrap: {error}", file=sys.stderr)
        return 2
    except LostWorkerError as error:
        from graphstrap.train.parallel.workers import leave_to_launcher

        print(f"graphstrap: {error}", file=sys.stderr)
        leave_to_launcher()
        return 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        return 1
    return 0
