"""Long documents and mixed columns, read piece by piece with the same result as all at once."""

import io
import json

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qacal.errors import InputError
from qacal.records.text_files import JsonDocument, file_options
from qacal.records.writers import writing
from qacal.sources.importers.gathering import RowBuffer

ALWAYS = ["id", "question", "answer", "confidence", "confidence_source", "correct"]
SCALARS = st.none() | st.booleans() | st.integers(-(10**20), 10**20) | st.floats(allow_nan=False) | st.text()
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3), max_leaves=8
)


class Trickle(io.StringIO):
    """A file that returns a few characters at a time."""

    def read(self, size=-1):
        return super().read(min(size, 3) if size and size > 0 else 3)


@given(st.lists(VALUES, max_size=5), VALUES, st.sampled_from([None, 2]), st.booleans())
def test_items_are_those_of_the_whole_document(rows, other, indent, is_ascii):
    text = json.dumps(
        {"first": other, "outer": {"rows": rows, "more": other}, "last": 1}, indent=indent, ensure_ascii=is_ascii
    )
    expected = json.loads(text)
    for stream in (io.StringIO(text, newline=""), Trickle(text, newline="")):
        document = JsonDocument(stream)
        assert list(document.items("outer", "rows")) == expected["outer"]["rows"]
        assert document.header == {"first": expected["first"], "last": 1}


@given(st.lists(VALUES, max_size=4))
def test_a_list_is_its_own_items(rows):
    assert list(JsonDocument(Trickle(json.dumps(rows))).items("anything")) == json.loads(json.dumps(rows))


@given(st.lists(VALUES, min_size=1, max_size=3), st.data())
def test_a_document_that_is_cut_is_refused(rows, data):
    text = json.dumps({"rows": rows})
    cut = data.draw(st.integers(0, len(text) - 1))
    with pytest.raises(InputError, match="cannot be read as JSON"):
        list(JsonDocument(io.StringIO(text[:cut])).items("rows"))


@pytest.mark.parametrize("text", ["", "3", '{"rows" [1]}', '{"rows": [1 2]}', "[1,", '[{"a": 1}] [2]', "[" * 10_000])
def test_text_that_is_not_a_document_is_refused(text):
    with pytest.raises(InputError, match="cannot be read as JSON"):
        list(JsonDocument(io.StringIO(text)).items("rows"))


def test_an_item_without_end_does_not_fill_the_memory():
    stream = io.StringIO('["' + "x" * 2**24)
    with (
        file_options(max_row_mb=1),
        pytest.raises(InputError, match=r"an item is broken, or is larger than 1 MB; .*--max-row-mb"),
    ):
        list(JsonDocument(stream).items())
    assert stream.tell() < 2**22


ROWS = st.lists(
    st.dictionaries(
        st.sampled_from(["a", "b", "c"]),
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats(allow_nan=False)
        | st.text()
        | st.lists(st.text(), max_size=2),
    ),
    min_size=1,
    max_size=6,
)


@given(ROWS, st.sampled_from([1, 2, 100]))
def test_rows_of_any_types_fit_one_schema_whatever_the_batches(rows, size):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("qacal.sources.importers.gathering._BATCH_ROWS", size)
        with RowBuffer() as buffer:
            for row in rows:
                buffer.add(row)
            tables = [table.data for table in buffer.tables()]
            assert len({tuple(table.schema.items()) for table in tables}) == 1
            assert sum(map(len, tables)) == len(rows)
            assert buffer.frame().equals(pl.concat(tables))


def test_types_keep_all_values():
    rows = [
        {
            "whole": 1,
            "real": 1,
            "flag": True,
            "mixed": 1,
            "texts": "one",
            "numbers": [1, 2.5],
            "big": 2**70,
            "half": "\ud800",
        },
        {
            "whole": None,
            "real": 0.5,
            "flag": None,
            "mixed": "x",
            "texts": ["a", "b"],
            "numbers": None,
            "tree": {"x": [1]},
        },
    ]
    with RowBuffer() as buffer:
        for row in rows:
            buffer.add(row)
        frame = buffer.frame()
    assert frame.drop(ALWAYS).to_dict(as_series=False) == {
        "whole": [1, None],
        "real": [1.0, 0.5],
        "flag": [True, None],
        "mixed": ["1", "x"],
        "texts": [["one"], ["a", "b"]],
        "numbers": [[1.0, 2.5], None],
        "big": [str(2**70), None],
        "half": ["\ufffd" * 3, None],
        "tree": [None, '{"x": [1]}'],
    }


def test_columns_that_come_late_are_in_every_file(tmp_path, monkeypatch):
    """CSV has its columns in the first line, and a log may have new ones in its last task."""
    monkeypatch.setattr("qacal.sources.importers.gathering._BATCH_ROWS", 1)
    with RowBuffer() as buffer:
        buffer.add({"id": "1", "level": 3})
        buffer.add({"id": "2", "level": "hard", "late": True})
        for name in ("out.csv", "out.jsonl", "out.parquet"):
            with writing(tmp_path / name, "csv") as writer:
                for table in buffer.tables():
                    writer.write(table)
    assert (tmp_path / "out.csv").read_text() == (",".join(ALWAYS) + ",level,late\n1,,,,,,3,\n2,,,,,,hard,True\n")
    assert pl.read_parquet(tmp_path / "out.parquet").to_dicts() == pl.read_ndjson(tmp_path / "out.jsonl").to_dicts()


def test_a_new_column_in_each_row_is_refused(monkeypatch):
    monkeypatch.setattr("qacal.sources.importers.gathering._MOST_COLUMNS", 8)
    with RowBuffer() as buffer:
        for number in range(10):
            buffer.add({"id": str(number), f"user_{number}": 1})
        assert buffer.frame().columns == [*ALWAYS, "user_0", "user_1"]
        assert len(buffer.left_out) == 8
