"""Each table and figure of the paper: the cells it needs, and what it shows of finished ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from statistics import fmean, stdev
from typing import Any

from cfuica.data.datasets import DEMO
from cfuica.reporting.charts import Chart, Series, line_chart, scatter_chart
from cfuica.reporting.report import Table
from cfuica.reproduction import systems
from cfuica.reproduction.accuracy import Metric, accuracy
from cfuica.reproduction.cells import Cell
from cfuica.reproduction.embedding import GENRES
from cfuica.reproduction.plan import Plan
from cfuica.reproduction.sections import DASH, Row, Section, figure, folds_and_seeds, mean_resources
from cfuica.reproduction.systems import ML_1M, NETFLIX, System
from cfuica.settings import TrainingSettings

# H^U + H^I, and H of the item-based CF-NADE.
TOTALS, QUICK_TOTALS = (250, 500, 750, 1000), (16, 64)
CLUSTERS, QUICK_CLUSTERS = (250, 500, 1000, 2000, 4000), (25, 100, 400)
# Genres of the embedded data.
DEMO_GENRES = ("Animation", "Documentary")
# The setting of I-CF-NADE that has its hidden units.
NADE_UNITS = "hidden"


@dataclass(frozen=True)
class Experiment:
    """A table or figure."""

    rows: Callable[[Plan], list[Row]]
    show: Callable[[Plan, list[Row]], Section]

    def cells(self, plan: Plan) -> list[Cell]:
        """Fold by fold, so that there is soon something of every row."""
        cells = [cell for row in self.rows(plan) for cell in row.cells]
        return sorted(cells, key=lambda cell: (cell.seed, cell.fold or 0))


def _rating_rows(plan: Plan) -> list[Row]:
    rows = [plan.row(system) for system in systems.RATING]
    rows += plan.peers(systems.BIAS)
    if plan.netflix:
        rows += [plan.row(system, NETFLIX) for system in systems.NETFLIX_RATING]
    return rows


_RMSE = Metric("rmse", "RMSE", lower_is_better=True)
_OF_LISTS = (Metric("hr@10", "HR@10"), Metric("ndcg@10", "NDCG@10"))


def _table1(plan: Plan, rows: list[Row]) -> Section:
    own = rows[: len(rows) - (len(systems.NETFLIX_RATING) if plan.netflix else 0)]
    title, ours = f"Table 1: test RMSE on {plan.label}", (systems.DEFAULT, systems.PAPER)
    shown = _ratings(plan, own, title, ML_1M, *ours)
    shown += _learning_curves(plan, own, "Table 1", "RMSE")
    if plan.netflix:
        of_netflix, title = rows[len(own) :], "Table 1: test RMSE on Netflix"
        shown += _ratings(plan, of_netflix, title, NETFLIX, systems.NETFLIX_PAPER)
    return shown


def _ratings(plan: Plan, rows: list[Row], title: str, key: str, *ours: System) -> Section:
    return accuracy(
        plan.folder, rows, title=title, key=key, metrics=(_RMSE,), question="ratings",
        floor="bias", references=[system.name for system in ours],
        comparable=not plan.quick and (key == NETFLIX or plan.label == ML_1M),
    )  # fmt: skip


def _learning_curves(plan: Plan, rows: list[Row], table: str, metric: str) -> Section:
    """Of the first finished cell of each row."""
    curves = []
    for row in rows:
        for record in row.finished(plan.folder).values():
            if len(record.get("curve", ())) > 1:
                seconds, scores = zip(*record["curve"], strict=True)
                curves.append(Series(row.title, [each / 60 for each in seconds], scores))
                break
    title = f"{table}: validation {metric} while training"
    chart = Chart(title, "minutes of training", metric, curves)
    return Section(charts={title: line_chart(chart)} if curves else {})


def _ranking_rows(plan: Plan) -> list[Row]:
    return [*(plan.row(system) for system in systems.RANKING), *plan.peers(systems.ITEM_POP)]


def _table2(plan: Plan, rows: list[Row]) -> Section:
    shown = Section()
    for protocol in plan.protocols:
        shown += accuracy(
            plan.folder, rows, title=f"Table 2 by protocol {protocol}, {plan.label}",
            key=protocol, metrics=_OF_LISTS, question=protocol, floor="itempop",
            references=(systems.DEFAULT_RANKING.name, systems.PAPER_RANKING.name),
            comparable=plan.label == ML_1M and not plan.quick,
        )  # fmt: skip
    return shown + _learning_curves(plan, rows, "Table 2", "NDCG@10")


def _measured(plan: Plan, name: str, title: str, *words: str, **more: Any) -> Row:
    """A row of one cell that trains nothing."""
    if "run_of" not in more:
        more["settings"] = systems.PAPER.settings(plan.label, quick=plan.quick)[0].model_dump()
        more["content"] = plan.content(plan.data, "rating")
    name = "-".join(filter(None, [plan.label, name, "quick" * plan.quick]))
    more |= {"minutes": 0.2} if plan.quick else {}
    cell = Cell(name, f"{title}, {plan.label}", name, {"answer": words}, **more)
    return Row(name, title, "ours", {}, (cell,), None, name)


def _once(plan: Plan, system: System, data: str | None = None) -> Row:
    row = plan.row(system, data)
    return replace(row, cells=plan.once(row.cells))


def _hidden(plan: Plan) -> int:
    return 32 if plan.quick else 500


def _table3_rows(plan: Plan) -> list[Row]:
    words = ["bench", "step", "--data", plan.data, "--hidden", str(_hidden(plan)), "--json"]
    if plan.quick:
        words += ["--repeats", "5", "--dense-repeats", "1"]
    rows = [_measured(plan, "step", "a minibatch", *words, minutes=2)]
    if plan.netflix:
        rows.append(_once(plan, systems.NETFLIX_PAPER, NETFLIX))
    return rows


def _table3(plan: Plan, rows: list[Row]) -> Section:
    columns = (
        "data", "B_U / B_I", "H_U / H_I", "the paper, TITAN X", "ours",
        "dense torch, as the authors wrote it", "dense torch, at its best",
    )  # fmt: skip
    shown = []
    for found in rows[0].finished(plan.folder).values():
        step, sides = found["answers"]["answer"], ("users", "items")
        sizes = " / ".join(f"{step['block'][side]:,}" for side in sides)
        units = " / ".join(str(step["hidden"][side]) for side in sides)
        dense = (step["dense_median_s"], step["dense_best_median_s"])
        seconds = [f"{each:.3f} s ({each / step['median_s']:.1f} x ours)" for each in dense]
        published = "0.77 s" if plan.data == ML_1M else DASH
        shown.append([plan.label, sizes, units, published, f"{step['median_s']:.3f} s", *seconds])
    for record in (found for row in rows[1:] for found in row.finished(plan.folder).values()):
        training = record["training"]
        mean = training["seconds_in_minibatches"] / training["steps"]
        shown.append(
            ["Netflix", "4,000 / 1,000", "500 / 500", "3.4 s", f"{mean:.2f} s", DASH, DASH]
        )
    for name, row in zip((plan.label, "Netflix"), rows, strict=False):
        if not row.finished(plan.folder):
            shown.append([name, *[DASH] * 3, row.missing(plan.folder), *[DASH] * 2])
    intro = (
        "Medians of one process, everything included, on the CPU; of Netflix the mean over its "
        "training. The paper's are of a GPU. What the block really has is shown, at most B_U / B_I."
    )
    return Section([Table("Table 3: seconds of a minibatch", columns, shown, intro)])


def _table4_rows(plan: Plan) -> list[Row]:
    words = ("bench", "test", "--data", plan.data, "--hidden", str(_hidden(plan)), "--json")
    tested = (systems.I_CF_NADE, systems.PAPER, systems.PAPER_RANKING)
    return [
        _measured(plan, "test", "predicting", *words, minutes=1.5),
        *(_once(plan, system) for system in tested),
    ]


def _table4(plan: Plan, rows: list[Row]) -> Section:
    columns = (
        "method", "task", "the paper, TITAN X", "ours", "the forward pass alone, ours",
        "dense torch, as the authors wrote it", "dense torch, at its best",
    )  # fmt: skip
    forward = [rows[0].missing(plan.folder), DASH, DASH]
    for record in rows[0].finished(plan.folder).values():
        answer = record["answers"]["answer"]
        names = ("median_s", "dense_median_s", "dense_best_median_s")
        forward = [f"{answer[name]:.3f} s" for name in names]
    asked = (
        ("CF-NADE", "rating prediction", "0.68 s", "ratings", [DASH] * 3),
        ("CF-UIcA", "rating prediction", "0.80 s", "ratings", forward),
        ("CF-UIcA", "top-N recommendation", "0.73 s", "paper", [DASH] * 3),
    )
    shown = []
    for row, (method, task, published, question, dense) in zip(rows[1:], asked, strict=True):
        records = list(row.finished(plan.folder).values())
        answers = [
            record["answers"][question] for record in records[:1] if question in record["answers"]
        ]
        seconds = f"{answers[0]['seconds']:.2f} s" if answers else row.missing(plan.folder)
        published = published if plan.data == ML_1M else DASH
        shown.append([method, task, published, seconds, *dense])
    intro = (
        "Ours is what `cfuica evaluate` needs for all test ratings, or to rank the candidates of "
        "all users (ten draws, with all metrics), without loading; the paper's is of a GPU."
    )
    return Section([Table("Table 4: test time", columns, shown, intro)])


def _hidden_rows(plan: Plan) -> list[Row]:
    rows = []
    for total in QUICK_TOTALS if plan.quick else TOTALS:
        half = {"hidden_users": total // 2, "hidden_items": total // 2}
        for of, changes in ((systems.PAPER, half), (systems.I_CF_NADE, {NADE_UNITS: total})):
            system = of.variant(f"h{total}", **changes)
            # What a row of Table 1 has is measured once.
            if _settings(plan, system) == _settings(plan, of):
                system = of
            own = "CF-UIcA" if of is systems.PAPER else "I-CF-NADE"
            rows.append(replace(plan.row(system), title=own, x=total))
    return rows


def _figure_hidden(plan: Plan, rows: list[Row]) -> Section:
    title = f"Hidden units, {plan.label}"
    return _curves(plan, rows, title, "hidden units in all (H_U + H_I)", "hidden units")


def _settings(plan: Plan, system: System) -> TrainingSettings:
    return system.settings(plan.label, quick=plan.quick)[0]


def _cluster_rows(plan: Plan) -> list[Row]:
    rows = []
    for clusters in QUICK_CLUSTERS if plan.quick else CLUSTERS:
        system = systems.PAPER.variant(f"c{clusters}", user_clusters=clusters)
        rows.append(replace(plan.row(system), title=plan.label, x=clusters))
    rows.append(replace(plan.row(systems.PAPER), title=plan.label, x=None))
    if plan.netflix:
        rows += [
            replace(plan.row(s, NETFLIX), title="Netflix", x=s.changes["user_clusters"])
            for s in systems.NETFLIX_CLUSTERS
        ]
    return rows


def _figure_clusters(plan: Plan, rows: list[Row]) -> Section:
    shown = Section()
    for name in dict.fromkeys(row.title for row in rows):
        own = [row for row in rows if row.title == name]
        title = f"Clusters of users, {name}"
        shown += _curves(plan, own, title, "clusters of users (last: each user alone)", "clusters")
    return shown


def _curves(plan: Plan, rows: list[Row], title: str, x_label: str, what: str) -> Section:
    """RMSE against what the rows differ in, a curve for each title; all over the same folds and
    seeds, those that most rows have."""
    lines: list[list[str]] = []
    points: dict[str, list[tuple[float, float]]] = {}
    measured = [row.finished(plan.folder) for row in rows]
    times = Counter(key for records in measured for key in records)
    most = max(times.values(), default=0)
    for row, records in zip(rows, measured, strict=True):
        found = [record for key, record in records.items() if times[key] == most]
        x = "none" if row.x is None else f"{row.x:,}"
        if not found:
            why = "not measured on the others' folds" if records else row.missing(plan.folder)
            lines.append([row.title, x, why, *[DASH] * 7])
            continue
        errors = [record["answers"]["ratings"]["rmse"] for record in found]
        training, alone = found[0]["training"], found[0]["data"]["users"]
        x_value = alone if row.x is None else row.x
        points.setdefault(row.title, []).append((x_value, fmean(errors)))
        spread = figure(stdev(errors)) if len(errors) > 1 else DASH
        count = f"{training['parameters']:,}"
        used = [count, *mean_resources(found), *folds_and_seeds(found)]
        lines.append([row.title, x, figure(fmean(errors)), spread, *used])
    columns = (
        "system or data", what, "RMSE", "spread", "parameters", "training", "CPU time",
        "peak memory", "folds", "seeds",
    )  # fmt: skip
    series = [Series(name, *zip(*own, strict=True)) for name, own in points.items()]
    chart = line_chart(Chart(title, x_label, "test RMSE", series))
    return Section([Table(title, columns, lines)], {title: chart})


def _tsne_rows(plan: Plan) -> list[Row]:
    trained = plan.row(systems.PAPER)
    genres = DEMO_GENRES if plan.data == DEMO else GENRES
    words = ("-m", "cfuica.reproduction.embedding", "{run}", "--genres", ",".join(genres))
    rows = []
    for own in trained.cells:
        more = {"run_of": own, "fold": own.fold, "seed": own.seed, "minutes": 0.5}
        place = f"tsne-fold{own.fold}-seed{own.seed}"
        rows.append(_measured(plan, place, "t-SNE", *words, **more))
    shown = plan.once([row.cells[0] for row in rows])
    asked = tuple(cell.run_of for cell in shown if cell.run_of)
    return [replace(trained, cells=asked), replace(rows[0], cells=shown)]


def _figure_tsne(plan: Plan, rows: list[Row]) -> Section:
    columns = ("genres", "items", "agreement (95%)", "chance (95%)", "p")
    for record in rows[1].finished(plan.folder).values():
        answer = record["answers"]["answer"]
        genres = " and ".join(answer["points"])
        title = f"t-SNE of V^I, {plan.label}: {genres}"
        series = [Series(name, *zip(*own, strict=True)) for name, own in answer["points"].items()]
        chart = scatter_chart(Chart(title, "first dimension", "second dimension", series))
        intro = (
            f"Agreement: the mean share of an item's {answer['neighbours']} nearest neighbours (of "
            f"the full vectors) that have its genre, over all items of exactly one of the two "
            f"genres. Chance: the same with permuted genres."
        )
        line = [
            genres,
            str(sum(map(len, answer["points"].values()))),
            f"{answer['agreement']:.3f} ({answer['low']:.3f} to {answer['high']:.3f})",
            f"{answer['chance']:.3f} ({answer['chance_low']:.3f} to {answer['chance_high']:.3f})",
            f"{answer['p']:.3g}",
        ]
        return Section([Table(title, columns, [line], intro)], {title: chart})
    line = [DASH, DASH, rows[1].missing(plan.folder), DASH, DASH]
    return Section([Table(f"t-SNE of V^I, {plan.label}", columns, [line])])


EXPERIMENTS = {
    "table1": Experiment(_rating_rows, _table1),
    "table2": Experiment(_ranking_rows, _table2),
    "table3": Experiment(_table3_rows, _table3),
    "table4": Experiment(_table4_rows, _table4),
    "figure-hidden": Experiment(_hidden_rows, _figure_hidden),
    "figure-clusters": Experiment(_cluster_rows, _figure_clusters),
    "figure-tsne": Experiment(_tsne_rows, _figure_tsne),
}
