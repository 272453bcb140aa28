"""Pictures and pages that need nothing but a browser to be read."""

from cfuica.reporting.bars import bar_chart
from cfuica.reporting.chart import Chart, ReferenceLine, Series
from cfuica.reporting.drawing import stacked
from cfuica.reporting.html import Table, write_report
from cfuica.reporting.svg import line_chart

__all__ = [
    "Chart",
    "ReferenceLine",
    "Series",
    "Table",
    "bar_chart",
    "line_chart",
    "stacked",
    "write_report",
]
