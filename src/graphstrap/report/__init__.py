"""What a person looks at: a picture, and a page that needs nothing but a browser."""

from graphstrap.report.build import write_report
from graphstrap.report.picture import draw_map

__all__ = ["draw_map", "write_report"]
