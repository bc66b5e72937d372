"""A graph as a frozen value, in all the forms that its features are kept in, and views of it. Imports nothing else."""

from graphstrap.graph.graph import Graph, Splits
from graphstrap.graph.views import CLEAN, View, ViewSpec

__all__ = ["CLEAN", "Graph", "Splits", "View", "ViewSpec"]
