"""Draw the next block in a background thread while the current one is computed."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor

from cfuica.learning.block import Block
from cfuica.learning.estimator import Estimator


class Prefetcher:
    """Hands out blocks in order. A block depends on (seed, step) only, so drawing ahead of time
    cannot change it."""

    def __init__(self, estimator: Estimator) -> None:
        self._estimator = estimator
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="cfuica-draw")
        self._ahead: tuple[int, Future[Block]] | None = None

    def take(self, step: int) -> Block:
        """Block number `step`; starts drawing the one after it."""
        if self._ahead is not None and self._ahead[0] == step:
            block = self._ahead[1].result()
        else:
            block = self._estimator.draw(step)
        self._ahead = (step + 1, self._thread.submit(self._estimator.draw, step + 1))
        return block

    def close(self) -> None:
        self._thread.shutdown(wait=True, cancel_futures=True)
