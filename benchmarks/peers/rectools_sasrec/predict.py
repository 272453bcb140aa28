"""RecTools' SASRec: self-attention over a user's last 200 items, softmax over all items.

    python predict.py SPLIT --out DIR [--layers sasrec|ligr] [--epochs 100] [--minutes 45]
        [--patience 20] [--seed 0]

Sizes and rates are those that its authors publish for MovieLens 1M (two blocks, 64 factors, one
head, dropout 0.1, batches of 128 users, Adam at 0.001); `--layers ligr` has the gated layers of
their eSASRec. They sample 256 negatives; with so few items the whole softmax is quicker on a CPU
and no worse. It learns from the training set. NDCG@10 of the validation items, after every
epoch, chooses the epoch; training ends when that has not risen for `--patience` epochs, or after
`--minutes`. When it is asked, it reads all that may be read.
"""

from __future__ import annotations

import argparse
import copy
import logging
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import torch
from pytorch_lightning import Callback, Trainer, seed_everything
from rectools import Columns
from rectools.dataset import Dataset
from rectools.models import SASRecModel
from rectools.models.nn.transformers.lightning import TransformerLightningModule
from rectools.models.nn.transformers.ligr import LiGRLayers
from rectools.models.nn.transformers.sasrec import SASRecTransformerLayers
from torch.nn.functional import cross_entropy

TOP = 100  # A list of so many tells every metric of the first 5, 10 and 20.
CUT_OFF = 10
USERS_AT_ONCE = 500
LAYERS = {
    "sasrec": {"transformer_layers_type": SASRecTransformerLayers},
    "ligr": {"transformer_layers_type": LiGRLayers, "use_key_padding_mask": True},
}


def main() -> None:
    """Learn from the training set, answer what is asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("split", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--layers", choices=list(LAYERS), default="sasrec")
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--minutes", type=float, default=45)
    parser.add_argument("--patience", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    warnings.filterwarnings("ignore")  # of Lightning: few workers, no logger
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    seed_everything(given.seed)
    train, valid = (pl.read_parquet(given.split / f"{name}.parquet") for name in ("train", "valid"))
    pair = ["user", "item"]
    model = SASRecModel(
        n_blocks=2,
        n_factors=64,
        n_heads=1,
        dropout_rate=0.1,
        session_max_len=200,
        batch_size=128,
        lr=0.001,
        **LAYERS[given.layers],
        lightning_module_type=WithoutPadding,
        get_val_mask_func=from_row,
        get_val_mask_func_kwargs={"row": train.height},
        get_trainer_func=trainer,
        get_trainer_func_kwargs={
            "epochs": given.epochs,
            "minutes": given.minutes,
            "patience": given.patience,
        },
    )
    model.fit(dataset_of(pl.concat([train.select(pair), valid.select(pair)])))
    for path in sorted(given.split.glob("asked-*.parquet")):
        protocol = path.stem.removeprefix("asked-")
        seen = pl.read_parquet(given.split / f"seen-{protocol}.parquet")
        answers = answer(pl.read_parquet(path), model, dataset_of(seen))
        answers.write_parquet(given.out / f"predicted-{protocol}.parquet")


def dataset_of(frame: pl.DataFrame) -> Dataset:
    """The rows are in the order of time; their places are the times, so that none is shared."""
    columns = {Columns.User: frame["user"].to_numpy(), Columns.Item: frame["item"].to_numpy()}
    places = pd.to_datetime(np.arange(frame.height), unit="s")
    columns |= {Columns.Weight: 1.0, Columns.Datetime: places}
    return Dataset.construct(pd.DataFrame(columns))


def from_row(interactions: pd.DataFrame, row: int) -> np.ndarray:
    """Which rows are validated on: those from this place on."""
    return (interactions[Columns.Datetime] >= pd.to_datetime(row, unit="s")).to_numpy()


class WithoutPadding(TransformerLightningModule):
    """The softmax loss of RecTools, computed where there is an item to predict.

    RecTools computes it for the padding too, half of all places, and leaves that out afterwards.
    """

    def training_step(self, batch: dict[str, torch.Tensor], batch_idx: int) -> torch.Tensor:
        """Mean loss of the batch."""
        items_mh, there = self.torch_model.item_model.get_all_embeddings(), batch["y"] != 0
        hidden_ph = self.torch_model.encode_sessions(batch, items_mh)[there]
        return cross_entropy(hidden_ph @ items_mh.T, batch["y"][there])

    def validation_step(self, batch: dict[str, torch.Tensor], batch_idx: int) -> None:
        """NDCG@10 of the users' next items, among all but those of the history that was read."""
        hidden_bh = self.torch_model.encode_sessions(batch, self.item_embs)[:, -1]
        scores_bm = hidden_bh @ self.item_embs.T
        # 0 is the padding.
        scores_bm[:, 0] = -torch.inf
        scores_bm.scatter_(1, batch["x"], -torch.inf)
        own_b1 = scores_bm.gather(1, batch["y"])
        rank_b = (scores_bm > own_b1).sum(dim=1)
        ndcg_b = torch.where(rank_b < CUT_OFF, 1 / torch.log2(2.0 + rank_b), 0.0)
        self.log("ndcg", ndcg_b.mean(), on_epoch=True, batch_size=len(ndcg_b))


class KeepBest(Callback):
    """Ends training in time, with the parameters of the best epoch."""

    def __init__(self, minutes: float, patience: int) -> None:
        self.minutes, self.patience = minutes, patience
        self.began, self.best, self.epoch, self.parameters = 0.0, -1.0, 0, {}

    def on_train_start(self, trainer: Trainer, module: TransformerLightningModule) -> None:
        self.began = time.monotonic()

    def on_validation_epoch_end(self, trainer: Trainer, module: TransformerLightningModule) -> None:
        found, minutes = (
            float(trainer.callback_metrics["ndcg"]),
            (time.monotonic() - self.began) / 60,
        )
        place = f"epoch {trainer.current_epoch}, {minutes:.1f} minutes"
        print(f"{place}: validation NDCG@{CUT_OFF} {found:.4f}", file=sys.stderr, flush=True)
        if found > self.best:
            self.best, self.epoch = found, trainer.current_epoch
            self.parameters = copy.deepcopy(module.state_dict())
        is_stale = trainer.current_epoch - self.epoch >= self.patience
        trainer.should_stop = is_stale or minutes >= self.minutes

    def on_train_end(self, trainer: Trainer, module: TransformerLightningModule) -> None:
        module.load_state_dict(self.parameters)
        print(f"Chosen: epoch {self.epoch}", file=sys.stderr)


def trainer(epochs: int, minutes: float, patience: int) -> Trainer:
    """On the CPU, silent but for `KeepBest`."""
    return Trainer(
        accelerator="cpu",
        max_epochs=epochs,
        callbacks=[KeepBest(minutes, patience)],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
    )


def answer(asked: pl.DataFrame, model: SASRecModel, seen: Dataset) -> pl.DataFrame:
    """Scores of the pairs that are asked for, or of each user's best unseen items."""
    is_of_pairs = "item" in asked
    users = asked["user"].unique(maintain_order=True).to_numpy()
    found = []
    for start in range(0, len(users), USERS_AT_ONCE):
        scored = model.recommend(
            users[start : start + USERS_AT_ONCE],
            seen,
            k=seen.item_id_map.size if is_of_pairs else TOP,
            filter_viewed=not is_of_pairs,
            on_unsupported_targets="ignore",
        )
        names = {Columns.User: "user", Columns.Item: "item", Columns.Score: "score"}
        part = pl.DataFrame({new: scored[old].to_numpy() for old, new in names.items()})
        if is_of_pairs:
            part = asked.join(part, on=["user", "item"], maintain_order="left")
        found.append(part)
    return pl.concat(found)


if __name__ == "__main__":
    main()
