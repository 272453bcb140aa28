"""Pictures and pages that need nothing but a browser to be read."""

from cfuica.reporting.charts import Chart, ReferenceLine, Series, bar_chart, line_chart
from cfuica.reporting.drawing import stacked
from cfuica.reporting.page import Table, write_report

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
