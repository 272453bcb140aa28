from __future__ import annotations

import pytest

from cfuica.errors import SettingsError
from cfuica.settings import PRESETS, ranking_preset, rating_preset


def test_the_presets_that_others_rely_on_exist() -> None:
    assert {"default", "paper", "paper-as-written"} <= set(PRESETS)
    for description, _ in PRESETS.values():
        assert description


def test_the_papers_preset_has_the_published_experiments_settings() -> None:
    """The paper's section on rating prediction, and what its authors' code does."""
    paper = rating_preset("paper")
    assert (paper.sides, paper.hidden_users, paper.hidden_items) == ("both", 500, 500)
    assert (paper.activation, paper.ensemble_size) == ("tanh", 1)
    assert (paper.batch_users, paper.batch_items) == (1000, 1000)
    assert (paper.learning_rate, paper.l2) == (1e-3, 1e-4)
    assert (paper.beta1, paper.beta2, paper.epsilon) == (0.9, 0.999, 1e-4)
    assert (paper.share_labels, paper.ordinal_weight, paper.estimator) == (True, 1.0, "published")
    assert paper.schedule == "patience"
    assert (paper.length_normalisation, paper.cold_start_units, paper.networks) == (0.0, 0, 1)


@pytest.mark.parametrize(
    ("name", "ordering"),
    [("paper", "chronological"), ("paper-uniform", "uniform"), ("paper-inverse", "inverse")],
)
def test_the_papers_ranking_presets_differ_in_their_ordering_and_length_alone(
    name: str, ordering: str
) -> None:
    """The paper's section on top-N recommendation and its authors' settings; the optimiser's are
    known of their rating model only."""
    paper = ranking_preset(name)
    assert paper.ordering == ordering
    chronological = ranking_preset("paper")
    # An average was published too; the four epochs of paper-inverse are too few for it.
    average = 0.0 if name == "paper-inverse" else chronological.weight_average
    assert paper == chronological.replaced(
        ordering=ordering, epochs=paper.epochs, weight_average=average
    )
    assert chronological.weight_average > 0
    assert (paper.sides, paper.hidden_users, paper.hidden_items) == ("both", 256, 256)
    assert (paper.activation, paper.ensemble_size, paper.learned_decay, paper.residual_units) == (
        "relu",
        1,
        False,
        0,
    )
    assert (paper.batch_users, paper.batch_items) == (200, 200)
    assert (paper.loss, paper.negatives, paper.ties) == ("bernoulli", 4, "together")
    assert (paper.drop_interactions, paper.drop_users, paper.dropout) == (None, None, 0.0)
    assert (paper.beta1, paper.beta2, paper.epsilon, paper.l2) == (0.9, 0.999, 1e-4, 1e-5)
    assert (paper.max_norm, paper.max_entry) == (5.0, 1.0)
    assert paper.keep_best  # the published model selection


def test_the_paper_as_written_has_the_settings_of_its_text_alone() -> None:
    written = rating_preset("paper-as-written")
    assert written.estimator == "strict"
    assert not written.share_labels
    assert written.ordinal_weight == 0.0
    assert written.max_norm is None
    assert written.max_entry is None


def test_the_default_follows_a_plan() -> None:
    assert rating_preset("default").schedule == "planned"


def test_an_unknown_preset_is_answered_with_those_there_are() -> None:
    with pytest.raises(SettingsError, match="no preset 'papers'; the presets are default, paper"):
        rating_preset("papers")
    with pytest.raises(SettingsError, match="no preset 'papers'; the presets are default, paper"):
        ranking_preset("papers")


def test_a_preset_of_the_other_task_is_refused_with_how_to_use_it() -> None:
    with pytest.raises(SettingsError) as ranking:
        rating_preset("paper-inverse")
    assert str(ranking.value) == (
        "The preset 'paper-inverse' belongs to the task ranking: use it with --task ranking, in "
        "Python with ranking_preset('paper-inverse'), or choose one of default, paper, "
        "paper-netflix, paper-as-written."
    )
    with pytest.raises(
        SettingsError, match=r"the task rating: .* with rating_preset\('paper-as-written'"
    ):
        ranking_preset("paper-as-written")
