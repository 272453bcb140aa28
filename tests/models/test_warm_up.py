"""What is warm is not compiled when it is timed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.live.test_live_model import fitted
from tests.models.ranking.cyclic import fitted as fitted_ranking

_USES = """
import sys
from importlib import import_module

import cfuica
from cfuica.models.warm_up import warm_up
from tests.ops.called_kernels import called_kernels

def compiled():
    found = {}
    for kernel in called_kernels():
        module, _, name = kernel.partition(".")
        found[kernel] = set(getattr(import_module(f"cfuica.ops.{module}"), name).signatures)
    return found

warm_up(sys.argv[2])
before = compiled()
model = cfuica.load(sys.argv[1])
__USE__
after = compiled()
late = {kernel: forms - before[kernel] for kernel, forms in after.items()}
assert not any(late.values()), {kernel: forms for kernel, forms in late.items() if forms}
"""
RATING = """
model.predict_proba({"user": [1, 2, 99], "item": [1, 2, 3]})
model.recommend([1, 99])
model.recommend(history=[(1, 5.0)], by="lower", exclude_seen=False, max_per={"series": 1})
model.similar_users(1, min_support=1)
model.explain(1, 2)
model.explain(None, 2, history=[(1, 5.0), (3, 1.0)])
model.observe([(1, 1, 5.0)])
model.recommend(1)
"""
RANKING = """
model.recommend([1, 99])
model.recommend(history=[1, 2], exclude_seen=False, min_support=1)
model.similar_users(1, min_support=1)
model.explain(1, 2)
model.explain(None, 2, history=[1, 3])
model.observe([(1, 1), (99, 2)])
model.recommend(1)
model.forget(1)
"""


@pytest.mark.parametrize(
    ("task", "model", "use"),
    [("rating", lambda: fitted("cold_start"), RATING), ("ranking", fitted_ranking, RANKING)],
)
def test_a_model_in_use_needs_no_form_of_a_kernel_that_is_not_warm(
    tmp_path: Path, task: str, model: Any, use: str
) -> None:
    folder = model().save(tmp_path / "model")
    outcome = subprocess.run(
        [sys.executable, "-c", _USES.replace("__USE__", use), str(folder), task],
        capture_output=True,
        text=True,
        check=False,
    )
    assert outcome.returncode == 0, outcome.stderr
