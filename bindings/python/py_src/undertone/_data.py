"""Data held in memory by Python, in its common forms."""

from __future__ import annotations

import os
import sys
from typing import Any

from ._undertone import Rows, UserError

KINDS = (
    "a DataFrame, an Arrow table, a Hugging Face dataset, a list of dicts, a dict of lists, or a "
    "path"
)


def path_of(data: Any) -> str | None:
    """The path of the data, if it is a path."""
    if isinstance(data, (str, os.PathLike)):
        return os.fsdecode(os.fspath(data))
    return None


def rows_of(data: Any, columns: list[str], name: str = "data") -> Rows:
    """The required columns of data in memory."""
    module = type(data).__module__.split(".")[0]
    if isinstance(data, dict) and module != "datasets":
        return Rows.from_columns(name, dict_of_columns(data, name), columns)
    if isinstance(data, list):
        return Rows.from_dicts(name, data, columns)
    if module == "datasets":
        if hasattr(data, "keys"):
            splits = ", ".join(repr(key) for key in data.keys())
            raise UserError(f"{name} is a dict of splits; choose one of {splits}")
        if not hasattr(data, "with_format") or not hasattr(data, "__getitem__"):
            raise UserError(f"{name} is a streaming dataset; give one that is in memory")
        return Rows.from_arrow(name, data.with_format("arrow")[:], columns)
    if module == "pandas":
        return rows_of_pandas(data, columns, name)
    if hasattr(data, "__arrow_c_stream__"):
        return Rows.from_arrow(name, data, columns)
    raise UserError(f"{name} must be {KINDS}, not {type(data).__name__}")


def dict_of_columns(data: dict[Any, Any], name: str) -> dict[str, Any]:
    for key, values in data.items():
        if not isinstance(key, str):
            raise UserError(f"{name} has a column {key!r}, whose name is not text")
        if isinstance(values, (str, bytes)) or not hasattr(values, "__iter__"):
            raise UserError(
                f"column {key!r} of {name} is of type {type(values).__name__}, not a list"
            )
    return data


def rows_of_pandas(data: Any, columns: list[str], name: str) -> Rows:
    """A pandas DataFrame: through Arrow if pyarrow is installed, otherwise column by column."""
    if type(data).__name__ != "DataFrame":
        raise UserError(f"{name} is a {type(data).__name__} of pandas; give a DataFrame")
    available = [str(column) for column in data.columns]
    if len(set(available)) < len(available):
        raise UserError(f"two columns of {name} have the same name; rename one of them")
    wanted = [
        column
        for column in data.columns
        if str(column) in columns or any(need.startswith(f"{column}.") for need in columns)
    ]
    if len(wanted) == 0 or not has_pyarrow():
        return rows_of_columns(data, wanted, columns, name, available)
    import pyarrow

    try:
        table = pyarrow.Table.from_pandas(data[wanted], preserve_index=False)
    except (pyarrow.ArrowInvalid, pyarrow.ArrowTypeError):
        # Columns of mixed types: the conversion by values reports which one.
        return rows_of_columns(data, wanted, columns, name, available)
    return Rows.from_arrow(name, table, columns)


def rows_of_columns(
    data: Any, wanted: list[Any], columns: list[str], name: str, available: list[str]
) -> Rows:
    lists: dict[str, Any] = {str(column): data[column].tolist() for column in wanted}
    # Named, so that an error about a missing column lists them.
    lists.update({column: [] for column in available if column not in lists})
    return Rows.from_columns(name, lists, columns)


def has_pyarrow() -> bool:
    if "pyarrow" in sys.modules:
        return True
    from importlib.util import find_spec

    return find_spec("pyarrow") is not None
