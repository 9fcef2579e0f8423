"""`fedhist.compare` and `fedhist.predict`: frames in, frames out, and figures of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from scipy import sparse

import fedhist
from fedhist import InvalidInput
from tests.support.refusals import refused

# These are few users, and a warning says so.
pytestmark = pytest.mark.filterwarnings("ignore:.*(close to chance|exceed a typical item)")
RECORDS = {
    "user": [f"u{user}" for user in range(40) for _ in range(3)],
    "item": [item for user in range(40) for item in ("a", "b", f"c{user % 5}")],
}
FEW: dict[str, Any] = {"selectors": ["weighted-quantile", "oracle"], "trials": 2, "workers": 1}


def words_in(figure: Any) -> list[str]:
    """Titles, labels, legends and texts of all of its axes."""
    from matplotlib.text import Text

    return [words.get_text() for words in figure.findobj(Text)]


@pytest.mark.parametrize("kind", [pd.DataFrame, pl.DataFrame, pa.table])
def test_the_frame_is_of_the_kind_that_came_in_and_can_be_drawn(kind: Any) -> None:
    frame = fedhist.compare(kind(RECORDS), epsilon=[0.5, 2.0], mechanism=["gaussian", "laplace"], **FEW)
    assert type(frame) is type(kind(RECORDS))
    table = pl.DataFrame(frame) if kind is not pd.DataFrame else pl.from_pandas(frame)
    assert table.height == 8
    assert table.columns[:6] == ["data", "users", "items", "method", "result", "loss_mean"]
    assert table["users"].to_list() == [40] * 8
    assert table.filter(pl.col("result") == "best").height == 2
    figure = fedhist.figure(frame)
    texts = words_in(figure)
    assert "epsilon of the histogram" in texts and "weighted-quantile, laplace" in texts


def test_a_frame_gives_the_losses_of_the_command_with_the_same_data(fedhist: Any, tmp_path: Path) -> None:
    import fedhist as package

    frame = pl.DataFrame(RECORDS)
    frame.write_csv(tmp_path / "a.csv")
    call = ("--selectors", "weighted-quantile,oracle", "--trials", 2, "--workers", 1, "--json")
    rows = fedhist("compare", "--data", "a.csv", *call).document()
    found = package.compare("a.csv", **FEW)
    assert found["loss_mean"].to_list() == [row["loss_mean"] for row in rows]
    assert found["data"].to_list() == ["a", "a"]


def test_sources_of_all_kinds_stand_beside_each_other_under_their_names() -> None:
    matrix = sparse.csr_array(np.eye(30, 4, dtype=int))
    found = fedhist.compare(
        {"rows": pl.DataFrame(RECORDS), "matrix": matrix, "made": "synthetic:poisson?users=50&items=6"},
        selectors="oracle", trials=1, workers=1,
    )  # fmt: skip
    assert found.select("data", "users", "items").rows() == [
        ("rows", 40, 7),
        ("matrix", 30, 4),
        ("made", 50, 6),
    ]
    assert found["loss_low"].to_list() == [None] * 3
    with refused(InvalidInput, "same-data"):
        fedhist.compare([pl.DataFrame(RECORDS), pd.DataFrame(RECORDS)], **FEW)


def test_lists_sizes_and_what_is_left_out() -> None:
    with pytest.warns(UserWarning, match="1 of 4"):
        found = fedhist.compare(
            pl.DataFrame(RECORDS), items=["a", "b"], selectors=["weighted-quantile", "quantile"],
            mechanism=["gaussian", "laplace"], trials=1, workers=1,
        )  # fmt: skip
    assert found["items"].to_list() == [2] * 3
    assert fedhist.compare(users=50, items=[3, 4], **FEW)["items"].unique().sort().to_list() == [3, 4]
    with refused(InvalidInput, "unknown-setting", "eps"):
        fedhist.compare(eps=1.0)
    for nothing in ([], {}):
        with refused(InvalidInput, "empty-list"):
            fedhist.compare(nothing)


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"users": 0}, ("bad-value", "users")),
        ({"users": 5, "items": "3"}, ("bad-value", "3")),
        ({"users": 5, "top_items": 1.5}, ("bad-value", "top_items", "1.5")),
        ({"users": 5, "trials": "3"}, ("bad-value", "3", "trials")),
        ({"users": 5, "seed": None}, ("bad-value", "seed")),
        ({"users": 5, "epsilon": []}, ("empty-list", "epsilon")),
        ({"users": 5, "selectors": 3}, ("bad-selectors",)),
        ({"users": 5, "nodes": 0, "masking": "secagg"}, ("bad-value", "nodes")),
        ({"users": 5, "best_by": "luck"}, ("bad-value", "estimate-loss")),
        ({"data": pl.DataFrame(RECORDS), "users": 5}, ("sizes-with-a-file", "top_items")),
        ({"data": pl.DataFrame(RECORDS), "items": 5}, ("sizes-with-a-file",)),
    ],
    ids=str,
)
def test_wrong_arguments_are_refused_by_their_names(wrong: dict[str, Any], told: tuple[str, ...]) -> None:
    with refused(InvalidInput, *told):
        fedhist.compare(**{"selectors": "oracle", "trials": 1, "workers": 1} | wrong)


class TestPredict:
    def test_the_target_has_a_row_of_its_own(self) -> None:
        frame = fedhist.predict(pd.DataFrame(RECORDS), epsilon=[0.5, 8.0], target_error=0.3)
        assert isinstance(frame, pd.DataFrame)
        assert len(frame) == 3 and frame["epsilon"].is_monotonic_increasing
        assert frame["reaches_target"].tolist() == [False, True, True]
        assert "predicted error" in words_in(fedhist.figure(frame))

    def test_out_of_reach_is_a_warning_with_the_least_error(self) -> None:
        with pytest.warns(UserWarning, match="The least error is"):
            frame = fedhist.predict(users=3_000, items=10, epsilon=[5.0, 9.0], target_error=1e-6)
        assert frame["reaches_target"].to_list() == [False, False]

    def test_rows_are_those_of_the_command(self, fedhist: Any) -> None:
        import fedhist as package

        call = ("plan", "--users", 300, "--items", 10, "--epsilon", "1,3", "--best-split", "--json")
        rows = fedhist(*call).document()["rows"]
        frame = package.predict(users=300, items=10, epsilon=[1.0, 3.0], best_split=True)
        assert frame["best_split_of"].to_list() == [1.0, 3.0]
        assert frame["relative_loss"].to_list() == [row["relative_loss"] for row in rows]
        guessed = package.predict(users=300, items=10, mean_total=5.0, epsilon=1.0)
        assert guessed.height == 1

    @pytest.mark.parametrize("epsilon", [0.0, [1.0, -1.0], "one", [], float("nan")])
    def test_epsilons_that_are_no_budgets_are_refused(self, epsilon: Any) -> None:
        with refused(InvalidInput, "bad-epsilons"):
            fedhist.predict(users=30, items=3, epsilon=epsilon)


def test_a_frame_of_something_else_has_no_figure() -> None:
    with refused(InvalidInput, "not-a-comparison"):
        fedhist.figure(pl.DataFrame(RECORDS))
    with refused(InvalidInput, "nothing-to-draw"):
        fedhist.figure(3)


def test_a_comparison_s_folder_has_the_figure_and_the_page_of_its_frame(tmp_path: Path) -> None:
    frame = fedhist.compare(pl.DataFrame(RECORDS), out=tmp_path / "c", **FEW)
    drawn, again = (words_in(fedhist.figure(what)) for what in (frame, tmp_path / "c"))
    assert drawn == again != []
    assert "The best method" in fedhist.report(tmp_path / "c", tmp_path / "page.html").read_text()


def test_plans_that_can_t_give_a_useful_answer_are_warned_of_with_their_number() -> None:
    settings: dict[str, Any] = {"selectors": "oracle", "trials": 1, "workers": 1, "users": 50, "items": 2}
    with pytest.warns(UserWarning, match=r"epsilon is 1000 .* epsilon_select"):
        fedhist.compare(epsilon=[1.0, 1000.0], **settings)


def test_a_prediction_of_plans_that_are_all_useless_says_so() -> None:
    with pytest.warns(UserWarning, match="one user") as caught:
        fedhist.predict(users=1, items=2, epsilon=[1.0, 2.0])
    assert len(caught) == 1
