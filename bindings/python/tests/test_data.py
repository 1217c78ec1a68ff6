"""Data in memory in every form is converted to the rows of a JSON Lines file."""

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
import undertone as ut
import world
from undertone import _undertone
from undertone._data import rows_of

pytest.importorskip("hypothesis")
from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

TEXT = st.text(st.characters(codec="utf-8"), max_size=12)
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "text": TEXT,
            "number": st.integers(-(2**63), 2**63 - 1),
            "share": st.floats(allow_nan=False, allow_infinity=False),
            "is": st.booleans(),
        }
    ),
    min_size=1,
    max_size=8,
)
COLUMNS = ["text", "number", "share", "is"]


def kept(data: Any, columns: list[str]) -> list[dict[str, Any]]:
    """The rows saved with a run."""
    return json.loads(_undertone.rows_as_json(rows_of(data, columns)))


def forms(rows: list[dict[str, Any]]) -> dict[str, Any]:
    pandas = pytest.importorskip("pandas")
    polars = pytest.importorskip("polars")
    pyarrow = pytest.importorskip("pyarrow")
    datasets = pytest.importorskip("datasets")
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    return {
        "dicts": rows,
        "columns": columns,
        "pandas": pandas.DataFrame(columns),
        "polars": polars.DataFrame(columns),
        "pyarrow": pyarrow.table(columns),
        "datasets": datasets.Dataset.from_dict(columns),
    }


@settings(max_examples=60, deadline=None)
@given(rows=ROWS)
def test_every_form_gives_the_same_rows(rows: list[dict[str, Any]]) -> None:
    for name, data in forms(rows).items():
        assert kept(data, COLUMNS) == rows, name


@settings(max_examples=40, deadline=None)
@given(rows=st.lists(st.lists(st.fixed_dictionaries({"role": TEXT, "content": TEXT}),
                              min_size=1, max_size=3), min_size=1, max_size=4))
def test_conversations_are_lists_of_dicts(rows: list[list[dict[str, str]]]) -> None:
    of = [{"messages": messages} for messages in rows]
    for name, data in forms(of).items():
        assert kept(data, ["messages"]) == of, name


def test_columns_that_are_not_needed_are_left_out() -> None:
    for name, data in forms([{"text": "a", "secret": "b"}]).items():
        assert kept(data, ["text"]) == [{"text": "a"}], name


def test_categories_slices_and_chunks() -> None:
    pandas = pytest.importorskip("pandas")
    pyarrow = pytest.importorskip("pyarrow")
    datasets = pytest.importorskip("datasets")
    polars = pytest.importorskip("polars")
    texts = [f"text {i}" for i in range(10)]
    labels = ["a", "b"] * 5
    rows = [{"text": text, "label": label} for text, label in zip(texts, labels)]
    frame = pandas.DataFrame({"text": texts, "label": pandas.Categorical(labels)})
    assert kept(frame, ["text", "label"]) == rows
    assert kept(frame[frame.label == "b"], ["text", "label"]) == rows[1::2]
    assert kept(frame.set_index("text").reset_index(), ["text", "label"]) == rows
    table = pyarrow.concat_tables([pyarrow.table(frame[:3]), pyarrow.table(frame[3:])])
    assert kept(table.slice(2, 5), ["text", "label"]) == rows[2:7]
    dataset = datasets.Dataset.from_list(rows)
    assert kept(dataset.select([4, 1, 7]), ["text"]) == [{"text": texts[i]} for i in (4, 1, 7)]
    lazy = polars.DataFrame(rows).with_columns(polars.col("label").cast(polars.Categorical))
    assert kept(lazy, ["text", "label"]) == rows


def test_missing_values_of_every_form_are_refused() -> None:
    pandas = pytest.importorskip("pandas")
    rows = [{"text": "a", "label": "x"}, {"text": None, "label": "y"}]
    for name, data in forms(rows).items():
        with pytest.raises(ut.UserError, match="row 1 of data has no value in column \"text\""):
            rows_of(data, ["text", "label"])
    for value in (float("nan"), pandas.NA, pandas.NaT, None):
        frame = pandas.DataFrame({"text": ["a", value], "label": ["x", "y"]}, dtype=object)
        with pytest.raises(ut.UserError, match="row 1 of data has no value"):
            rows_of(frame, ["text", "label"])


def test_mistakes_of_every_form_are_one_sentence() -> None:
    pandas = pytest.importorskip("pandas")
    pyarrow = pytest.importorskip("pyarrow")
    datasets = pytest.importorskip("datasets")
    for name, data in forms([{"text": "a", "label": "x"}]).items():
        with pytest.raises(ut.UserError, match='data has no column "words"') as caught:
            rows_of(data, ["words"])
        assert '"text"' in str(caught.value), name
    mixed = pandas.DataFrame({"text": ["a", 3]}, dtype=object)
    with pytest.raises(ut.UserError, match="mixes text and numbers"):
        rows_of(mixed, ["text"])
    dates = pandas.DataFrame({"text": pandas.to_datetime(["2026-01-01"])})
    with pytest.raises(ut.UserError, match="convert it to text"):
        rows_of(dates, ["text"])
    twice = pandas.DataFrame([["a", "b"]], columns=["text", "text"])
    with pytest.raises(ut.UserError, match="same name"):
        rows_of(twice, ["text"])
    with pytest.raises(ut.UserError, match="give a DataFrame"):
        rows_of(pandas.Series(["a"]), ["text"])
    for empty in (pandas.DataFrame({"text": []}), pyarrow.table({"text": []})):
        with pytest.raises(ut.UserError, match="has no rows"):
            rows_of(empty, ["text"])
    with pytest.raises(ut.UserError, match="choose one of 'train'"):
        rows_of(datasets.DatasetDict({"train": datasets.Dataset.from_dict({"text": ["a"]})}), [])
    with pytest.raises(ut.UserError, match="infinite"):
        rows_of([{"text": float("inf")}], ["text"])
    with pytest.raises(ut.UserError, match="64 bits"):
        rows_of([{"text": 2**70}], ["text"])
    with pytest.raises(ut.UserError, match="surrogate"):
        rows_of([{"text": "\ud800"}], ["text"])


def test_numpy_values_are_values() -> None:
    numpy = pytest.importorskip("numpy")
    columns = {"text": numpy.array(["a", "b"]), "label": numpy.array([1, 0])}
    assert kept(columns, ["text", "label"]) == [{"text": "a", "label": 1}, {"text": "b", "label": 0}]


def test_a_frame_trains_the_same_run_as_a_list() -> None:
    pandas = pytest.importorskip("pandas")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = world.model(folder / "model")
        runs = [
            ut.train(model=model, data=data, out=folder / str(number), seed=3,
                     settings=world.SETTINGS, author="who", **world.FAST)
            for number, data in enumerate((world.rows(), pandas.DataFrame(world.rows())))
        ]
        assert world.weights(runs[0].folder) == world.weights(runs[1].folder)
        rows = [(run.folder / "private" / "train.jsonl").read_bytes() for run in runs]
        assert rows[0] == rows[1]
        assert pandas.DataFrame(runs[0].history).loss.notna().any()
        assert len(pandas.DataFrame(runs[0].ledger)) == 1
