"""A moving average of the parameters, which is calmer than they are themselves."""

from __future__ import annotations

import math
from copy import deepcopy

from cfuica.model.conditional import CoAutoregressive

STRIDE = 10  # minibatches between two updates, which then cost a few per cent of the time


class MovingAverage:
    """average = (1 - a) average + a parameters after minibatch t, where a = 1 / (span t) up to 1.

    So it spans about the newest `span` of all minibatches, however many there will be, and nothing
    of the initial values remains. Minibatches between two updates count as if they had ended like
    the second.
    """

    def __init__(self, model: CoAutoregressive, span: float) -> None:
        self.model = deepcopy(model)
        """The average; it may be set from outside."""
        self.seen = 0
        self._span = span

    def take_in(self, model: CoAutoregressive, step: int) -> None:
        """Let the parameters after `step` minibatches in."""
        steps = range(self.seen + 1, step + 1)
        kept = math.prod(1 - min(1.0, 1 / (self._span * each)) for each in steps)
        newest = model.tensors()
        for name, tensor in self.model.tensors().items():
            tensor.lerp_(newest[name], 1 - kept)
        self.seen = step
