"""What is warm is not compiled when it is timed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.live.test_model import fitted

_USES = """
import sys

import cfuica
from cfuica.kernels import calibrate, decode, live, products, score, select
from cfuica.warm import warm_up

kernels = [
    calibrate.calibrate, decode.decode, live.fill, live.find, live.hidden_vectors, live.shift,
    products.products, score.expected, score.worst, select.best,
]
warm_up()
before = {kernel: set(kernel.signatures) for kernel in kernels}
assert all(before.values()), before
model = cfuica.load(sys.argv[1])
model.predict_proba({"user": [1, 2, 99], "item": [1, 2, 3]})
model.recommend([1, 99])
model.recommend(history=[(1, 5.0)], by="lower", exclude_seen=False, max_per={"series": 1})
model.similar_users(1, min_support=1)
model.explain(1, 2)
model.observe([(1, 1, 5.0)])
model.recommend(1)
for kernel in kernels:
    assert set(kernel.signatures) == before[kernel], (kernel, kernel.signatures, before[kernel])
"""


def test_a_model_in_use_needs_no_form_of_a_kernel_that_is_not_warm(tmp_path: Path) -> None:
    folder = fitted("strangers").save(tmp_path / "model")
    outcome = subprocess.run(
        [sys.executable, "-c", _USES, str(folder)], capture_output=True, text=True, check=False
    )
    assert outcome.returncode == 0, outcome.stderr
