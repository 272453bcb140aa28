"""Pictures and pages that need nothing but a browser to be read."""

from cfuica.reporting.html import Table, write_report
from cfuica.reporting.svg import ReferenceLine, Series, line_chart

__all__ = ["ReferenceLine", "Series", "Table", "line_chart", "write_report"]
