"""The table of verbs, and what happens when one fails."""

from __future__ import annotations

import functools
import signal
import sys
import threading
from collections.abc import Callable
from importlib.metadata import entry_points
from types import FrameType

import typer

from graphstrap.cli.card import card
from graphstrap.cli.datasets import datasets
from graphstrap.cli.demo import demo
from graphstrap.cli.embed import embed
from graphstrap.cli.evaluate import evaluate
from graphstrap.cli.fit import fit
from graphstrap.cli.info import info
from graphstrap.cli.neighbors import neighbors
from graphstrap.cli.predict import predict
from graphstrap.cli.prepare import prepare
from graphstrap.cli.report import report
from graphstrap.cli.resume import resume
from graphstrap.errors import DivergedError, InputError, InterruptedTrainingError, LostWorkerError
from graphstrap.train.parallel.workers import end_with_parent, leave_to_launcher

# Ctrl-C and SIGTERM where a verb does not save by itself, as training does: it cleans up, and says so.


class Terminated(KeyboardInterrupt):
    """SIGTERM, on the way of Ctrl-C: temporary files go, locks are let go of."""


def stoppable(verb: Callable[..., None]) -> Callable[..., None]:
    """The verb, ended by a signal with one sentence and the usual exit code."""

    @functools.wraps(verb)
    def run(*arguments: object, **options: object) -> None:
        in_main = threading.current_thread() is threading.main_thread()
        terminated = False  # remembered: on its way through a library the exception may become another

        def terminate(number: int, frame: FrameType | None) -> None:
            nonlocal terminated
            terminated = True
            raise Terminated

        before = signal.signal(signal.SIGTERM, terminate) if in_main else None
        try:
            verb(*arguments, **options)
        except InterruptedTrainingError as stop:  # noticed by training, which ended a step first
            print(f"graphstrap: {stop}", file=sys.stderr)
            raise typer.Exit(130) from stop
        except KeyboardInterrupt as stop:
            print("graphstrap: stopped; no half-written file is left", file=sys.stderr)
            raise typer.Exit(143 if terminated else 130) from stop
        finally:
            if in_main:
                signal.signal(signal.SIGTERM, before)

    return run


VERBS: dict[str, Callable[..., None]] = {
    "demo": demo,
    "datasets": datasets,
    "fit": fit,
    "resume": resume,
    "embed": embed,
    "predict": predict,
    "prepare": prepare,
    "evaluate": evaluate,
    "neighbors": neighbors,
    "report": report,
    "card": card,
    "info": info,
}

app = typer.Typer(
    help="Learn node embeddings of any graph without labels, by bootstrapping (BGRL).",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
for _name, _verb in VERBS.items():
    app.command(_name, context_settings={"allow_extra_args": _verb is fit})(stoppable(_verb))  # fit says what to do
for _entry in entry_points(group="graphstrap.verbs"):
    _found = _entry.load()
    if isinstance(_found, typer.Typer):
        app.add_typer(_found, name=_entry.name)
    else:
        app.command(_entry.name)(stoppable(_found))


def run(arguments: list[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    end_with_parent()
    given = sys.argv[1:] if arguments is None else arguments
    try:
        app(args=given, obj=list(given), standalone_mode=True)
    except SystemExit as finished:
        return int(finished.code or 0)
    except (InputError, DivergedError) as error:
        print(f"graphstrap: {error}", file=sys.stderr)
        return 2
    except LostWorkerError as error:
        print(f"graphstrap: {error}", file=sys.stderr)
        leave_to_launcher()
        return 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        return 1
    return 0
