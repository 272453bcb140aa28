"""Pictures and pages that need nothing but a browser to be read."""

from cfuica.reporting.chart import Chart, ReferenceLine, Series
from cfuica.reporting.html import Table, write_report
from cfuica.reporting.svg import line_chart

__all__ = ["Chart", "ReferenceLine", "Series", "Table", "line_chart", "write_report"]
