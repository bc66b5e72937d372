"""The options that say which columns of two tables mean what: declared once, for every verb that reads tables."""

from __future__ import annotations

from collections.abc import Callable
from inspect import Parameter, signature
from typing import TYPE_CHECKING, Annotated

import typer

from graphstrap.cli import _options as o

if TYPE_CHECKING:
    from graphstrap.io.columns import TableOptions

Column = str | None


def table_options(
    source_column: Annotated[
        Column, typer.Option(help="Edge column of source ids [default: `source`, `src` or `from`, or the first].")
    ] = None,
    target_column: Annotated[
        Column, typer.Option(help="Edge column of target ids [default: `target`, `dst` or `to`, or the second].")
    ] = None,
    weight_column: Annotated[Column, typer.Option(help="Edge column of weights [default: `weight`].")] = None,
    edge_type_column: Annotated[Column, typer.Option(help="Edge column of types [default: `type`].")] = None,
    edge_time_column: Annotated[Column, typer.Option(help="Edge column of times [default: `time`].")] = None,
    id_column: Annotated[Column, typer.Option(help="Node column of ids [default: `id`, or the first].")] = None,
    label_column: Annotated[Column, typer.Option(help="Node column of labels [default: `label`].")] = None,
    split_column: Annotated[Column, typer.Option(help="Node column of train/val/test [default: `split`].")] = None,
    type_column: Annotated[Column, typer.Option(help="Node column of types [default: `type`].")] = None,
    node_time_column: Annotated[Column, typer.Option(help="Node column of times [default: `time`].")] = None,
    feature_columns: Annotated[
        Column, typer.Option(help="Feature columns, separated by commas [default: all others].")
    ] = None,
    ignore_columns: o.IgnoreColumns = None,
    directed: Annotated[
        bool, typer.Option("--directed", help="Keep edge directions instead of adding every reverse.")
    ] = False,
    ignore_unknown_nodes: o.IgnoreUnknownNodes = False,
) -> TableOptions:
    from graphstrap.io.columns import TableOptions

    return TableOptions(
        source=source_column,
        target=target_column,
        weight=weight_column,
        edge_type=edge_type_column,
        time=edge_time_column,
        id=id_column,
        label=label_column,
        split=split_column,
        type=type_column,
        node_time=node_time_column,
        feature_columns=o.names(feature_columns),
        ignore_columns=o.names(ignore_columns) or (),
        directed=directed,
        ignore_unknown_nodes=ignore_unknown_nodes,
    )


def with_table_options(verb: Callable[..., None]) -> Callable[..., None]:
    """Declare all of these, before the last option, for a verb that takes them as `**columns` and calls
    `table_options(**columns)`."""
    given = signature(verb, eval_str=True)
    columns = signature(table_options, eval_str=True, locals={"TableOptions": object}).parameters
    *first, last = [one for one in given.parameters.values() if one.kind is not Parameter.VAR_KEYWORD]
    verb.__signature__ = given.replace(parameters=[*first, *columns.values(), last])  # type: ignore[attr-defined]
    return verb
