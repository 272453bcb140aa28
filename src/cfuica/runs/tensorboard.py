"""The numbers of a training for TensorBoard. Needs tensorboard, the extra `viz`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from cfuica.errors import SettingsError
from cfuica.learning.progress import Progress
from cfuica.runs.listeners import ForOneTraining
from cfuica.settings import CommonSettings

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter


def require_tensorboard() -> None:
    """Say before a night of training, not after it, that something is missing."""
    try:
        import torch.utils.tensorboard  # noqa: F401
    except ImportError as error:
        raise SettingsError(
            f"Writing for TensorBoard needs the extra viz ({error}): pip install 'cfuica[viz]'."
        ) from None


class TensorBoardFiles(ForOneTraining):
    """Scalars over minibatches under `folder`, each member a TensorBoard run of its own, and so
    the strangers' network.

    The cost comes with every minibatch, everything else with every validation, and can be looked
    at while training goes on: `tensorboard --logdir RUN/tensorboard`.

    `resumed_after` is where a training goes on: (member, the steps it has done). The files of the
    training before it stay; what they hold of later steps is hidden, because it is done again.
    """

    def __init__(self, folder: Path, *, resumed_after: tuple[int, int] = (0, 0)) -> None:
        self._folder = folder
        self._resumed_after = resumed_after
        self._writers: dict[int, SummaryWriter] = {}
        self._settings = CommonSettings()

    def open(self) -> None:
        require_tensorboard()

    def close(self) -> None:
        for writer in self._writers.values():
            writer.close()

    def started(self, settings: CommonSettings) -> None:
        self._settings = settings

    def stepped(self, member: int, step: int, cost: float) -> None:
        self._writer(member).add_scalar("training/cost", cost, step)

    def validated(self, progress: Progress) -> None:
        values = {
            "training/learning rate": progress.rate,
            "training/gradient norm": progress.gradient_norm,
        }
        if progress.valid is not None:
            values |= {f"validation/{name}": x for name, x in progress.valid.named.items()}
            assert progress.best is not None
            values[f"validation/best {progress.valid.measure}"] = progress.best
        writer = self._writer(progress.member)
        for name, value in values.items():
            writer.add_scalar(name, value, progress.step)
        writer.flush()

    def _writer(self, member: int) -> SummaryWriter:
        from torch.utils.tensorboard import SummaryWriter

        if member not in self._writers:
            resumed, steps = self._resumed_after
            strangers = self._settings.is_of_strangers(member)
            self._writers[member] = SummaryWriter(
                str(self._folder / ("strangers" if strangers else f"model-{member + 1}")),
                # A later member than the resumed one starts again from its first step.
                purge_step=1 + (steps if member == resumed else 0),
            )
        return self._writers[member]
