"""What a person looks at."""

from graphstrap.report.picture import draw_map

__all__ = ["draw_map"]
