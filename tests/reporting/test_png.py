from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path

import pytest

from cfuica.errors import CfuicaError
from cfuica.reporting import Chart, ReferenceLine, Series, png
from cfuica.reporting.png import available, write_charts

pytest.importorskip("matplotlib", reason="needs the extra viz")

CURVE = Chart("RMSE", "epoch", "stars", [Series("s", [1, 2, 3], [1.0, 0.9, 0.88])])


def picture(tmp_path: Path, *charts: Chart) -> bytes:
    path = tmp_path / "charts.png"
    write_charts(path, charts)
    return path.read_bytes()


def pixels(data: bytes):
    from io import BytesIO

    from matplotlib.image import imread

    return imread(BytesIO(data), format="png")


def drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chart: Chart):
    """The axes that the chart was drawn on."""
    seen = []
    original = png._draw
    monkeypatch.setattr(png, "_draw", lambda axes, c: (original(axes, c), seen.append(axes)))
    picture(tmp_path, chart)
    (axes,) = seen
    return axes


def test_charts_stand_below_each_other(tmp_path: Path) -> None:
    one, two = pixels(picture(tmp_path, CURVE)), pixels(picture(tmp_path, CURVE, CURVE))
    assert two.shape[0] == 2 * one.shape[0]
    assert two.shape[1] == one.shape[1]
    assert one.std() > 0.01  # something is drawn


def test_shows_title_labels_names_and_reference_values(tmp_path: Path, monkeypatch) -> None:
    lines = [ReferenceLine("item mean", 0.98), ReferenceLine("lost", math.nan)]
    chart = Chart("RMSE", "epoch", "stars", CURVE.series, lines)
    axes = drawn(tmp_path, monkeypatch, chart)
    assert axes.get_title(loc="left") == "RMSE"
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("epoch", "stars")
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["s"]
    assert [text.get_text() for text in axes.texts] == ["item mean 0.9800"]
    curve, reference = axes.get_lines()
    assert list(curve.get_ydata()) == [1.0, 0.9, 0.88]
    assert set(reference.get_ydata()) == {0.98}


def test_points_that_are_not_finite_leave_a_gap(tmp_path: Path, monkeypatch) -> None:
    y = [1.0, 0.9, math.nan, 0.8, math.inf, *[0.7] * 50]  # too many points for markers
    axes = drawn(tmp_path, monkeypatch, Chart("t", "x", "y", [Series("s", range(55), y)]))
    runs = [(len(line.get_xdata()), line.get_marker()) for line in axes.get_lines()]
    assert runs == [(2, ""), (1, "o"), (50, "")]
    assert len(axes.get_legend().get_texts()) == 1


@pytest.mark.parametrize("series", [[], [Series("s", [], [])], [Series("s", [1], [math.nan])]])
def test_a_chart_without_points_says_so(tmp_path: Path, monkeypatch, series) -> None:
    axes = drawn(tmp_path, monkeypatch, Chart("t", "x", "y", series))
    assert "no points yet" in [text.get_text() for text in axes.texts]


def test_no_two_of_many_curves_look_alike(tmp_path: Path, monkeypatch) -> None:
    series = [Series(str(n), [0, 1], [n, n + 1]) for n in range(18)]
    axes = drawn(tmp_path, monkeypatch, Chart("t", "x", "y", series))
    looks = {
        (line.get_color(), line.get_marker(), str(line._unscaled_dash_pattern))
        for line in axes.get_lines()
    }
    assert len(looks) == 18


def test_names_are_text_and_no_formulas(tmp_path: Path) -> None:
    picture(tmp_path, Chart("$x", "$\\frac{$", "y$", [Series("$^$", [0, 1], [0, 1])]))


def test_the_same_charts_give_the_same_bytes_whatever_the_users_style(tmp_path: Path) -> None:
    import matplotlib

    first = picture(tmp_path, CURVE)
    with matplotlib.rc_context({"axes.facecolor": "red", "font.size": 20}):
        assert picture(tmp_path, CURVE) == first
        assert matplotlib.rcParams["font.size"] == 20
    assert b"Software" not in first


def test_pyplot_is_left_alone(tmp_path: Path) -> None:
    program = (
        "import sys; from cfuica.reporting import Chart; from cfuica.reporting.png import *\n"
        "assert available() and 'matplotlib' not in sys.modules\n"
        f"write_charts({str(tmp_path / 'a.png')!r}, [Chart('t', 'x', 'y', [])])\n"
        "assert 'matplotlib.pyplot' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_failure_leaves_the_old_picture(tmp_path: Path) -> None:
    old = picture(tmp_path, CURVE)
    with pytest.raises(ValueError, match="'s' has 2 x and 1 y"):
        picture(tmp_path, Chart("t", "x", "y", [Series("s", [0, 1], [0])]))
    assert (tmp_path / "charts.png").read_bytes() == old
    assert [path.name for path in tmp_path.iterdir()] == ["charts.png"]


def test_without_matplotlib_the_extra_is_named(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(png, "find_spec", lambda name: None)
    assert not available()
    with pytest.raises(CfuicaError, match=r"need the extra viz: pip install 'cfuica\[viz\]'"):
        picture(tmp_path, CURVE)
    assert not list(tmp_path.iterdir())


def test_no_charts_are_no_picture(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no charts"):
        picture(tmp_path)
