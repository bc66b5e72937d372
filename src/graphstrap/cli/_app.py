"""The table of verbs, and what happens when one fails."""

from __future__ import annotations

import sys
from collections.abc import Callable

import typer

from graphstrap.cli._stop import stoppable
from graphstrap.cli.bench import bench
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
from graphstrap.cli.reproduce import reproduce
from graphstrap.cli.resume import resume
from graphstrap.errors import InputError
from graphstrap.parallel import LostWorkerError, end_with_parent, leave_to_launcher
from graphstrap.train import DivergedError

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
    "reproduce": reproduce,
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
app.add_typer(bench, name="bench")


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
