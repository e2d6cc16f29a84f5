"""Reading and writing rows: every format, in batches, and no partial files."""

import gzip
import io
import json
import sys

import numpy as np
import polars as pl
import pytest

from qacal.errors import InputError
from qacal.records.files import File, format_of, from_stream, open_file
from qacal.records.reading import read
from qacal.records.table import as_table
from qacal.records.text_files import file_options
from qacal.records.writers import atomic_file, write_frame, writing

ROWS = [
    {
        "id": 7,
        "question": 'Who said "Ok, …\nthen"?',
        "answer": "",
        "confidence": 0.8,
        "tags": ["a", {"b": 1}],
        "big": 10**25,
    },
    {"id": "7b", "question": "二加二?", "answer": "4", "confidence": 1, "extra": None},
]


def written(path, text):
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def jsonl(rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


def copied(source, target, batch_rows=1):
    file = open_file(source)
    with writing(target, file.format) as writer:
        for table in file.batches(batch_rows=batch_rows):
            writer.write(table)


@pytest.mark.parametrize("name", ["a.jsonl", "a.ndjson", "a.JSONL.gz"])
def test_json_lines_pass_through_untouched(tmp_path, name):
    raw = jsonl(ROWS).encode()
    source = written(tmp_path / name, gzip.compress(raw) if name.endswith("gz") else raw)
    copied(source, tmp_path / "out.jsonl")
    back = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert back == ROWS
    assert [list(row) for row in back] == [list(row) for row in ROWS]


def test_csv_passes_through_untouched(tmp_path):
    text = 'id,question,answer\n007,"a ""b"", c\nd",\n08,二,x\n'
    copied(written(tmp_path / "a.csv", text), tmp_path / "out.csv")
    assert (tmp_path / "out.csv").read_text() == text


def test_parquet_passes_through_untouched(tmp_path):
    frame = pl.DataFrame(
        {"id": [1, 2, 3], "v": [[1.0, 2.0], [3.0], None], "c": pl.Series([0.1, 0.2, 0.3], dtype=pl.Float32)}
    )
    frame.write_parquet(tmp_path / "a.parquet")
    copied(tmp_path / "a.parquet", tmp_path / "out.parquet", batch_rows=2)
    assert pl.read_parquet(tmp_path / "out.parquet").equals(frame)
    assert pl.read_parquet(tmp_path / "out.parquet").schema == frame.schema


@pytest.mark.parametrize("source", ["jsonl", "json", "csv", "tsv", "parquet"])
@pytest.mark.parametrize("target", ["jsonl", "json", "csv", "tsv", "parquet", "jsonl.gz", "json.gz", "csv.gz"])
def test_any_format_to_any_other(tmp_path, source, target):
    frame = pl.DataFrame({"question": ["a", "b,\n", "c"], "confidence": [0.5, 1.0, 0.25], "id": ["x", "y", "z"]})
    write_frame(frame, tmp_path / f"in.{source}")
    copied(tmp_path / f"in.{source}", tmp_path / f"out.{target}", batch_rows=2)
    tables = list(open_file(tmp_path / f"out.{target}").batches())
    rows = [row for table in tables for row in table.rows()]
    assert [row["question"] for row in rows] == ["a", "b,\n", "c"]
    assert [float(row["confidence"]) for row in rows] == [0.5, 1.0, 0.25]


def test_batches_know_the_place_of_each_row(tmp_path):
    source = written(tmp_path / "a.jsonl", '{"a":1}\n\n{"a":2}\n{"a":3}\n')
    tables = list(open_file(source).batches(batch_rows=2))
    assert [table.places.tolist() for table in tables] == [[1, 3], [4]]
    quoted = written(tmp_path / "a.csv", 'q,c\n"one\ntwo",1\nthree,2\n')
    (table,) = open_file(quoted).batches()
    assert table.places.tolist() == [2, 4]


def test_rows_before_the_end_of_a_file_that_was_cut_off_are_read(tmp_path):
    line = json.dumps({"question": "x" * 200, "confidence": 0.5}, separators=(",", ":")) + "\n"
    whole = gzip.compress((line * 60_000).encode(), 1)
    table = open_file(written(tmp_path / "cut.jsonl.gz", whole[: len(whole) * 9 // 10]))
    rows = list[int]()
    with pytest.raises(InputError, match="cannot be read beyond byte"):
        rows.extend(map(len, table.batches()))
    assert sum(rows) > 30_000


def test_a_byte_order_mark_is_not_part_of_the_first_name(tmp_path):
    for name, text in (("a.csv", "question,c\nx,1\n"), ("a.jsonl", '{"question":"x"}\n')):
        (table,) = open_file(written(tmp_path / name, b"\xef\xbb\xbf" + text.encode())).batches()
        assert table.names[0] == "question"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('{"a":', "line 2: the line is not JSON"),
        ("[1, 2]", "line 2: the line is list, not an object"),
        (b'{"a": "\xff"}', "line 2: the line is not UTF-8 text"),
        ("[" * 100_000, "line 2: the line is not JSON"),
    ],
)
def test_lines_that_are_not_rows_are_named(tmp_path, line, said):
    raw = line if isinstance(line, bytes) else line.encode()
    source = written(tmp_path / "a.jsonl", b'{"a":1}\n' + raw + b'\n{"a":3}\n')
    with pytest.raises(InputError, match=said):
        list(open_file(source).batches())
    faults = []
    (table,) = open_file(source).batches(faults.append)
    assert [row["a"] for row in table.rows()] == [1, 3]
    assert len(faults) == 1


def test_csv_rows_of_another_length_are_named(tmp_path):
    source = written(tmp_path / "a.csv", "a,b\n1,2\n1,2,3\n")
    with pytest.raises(InputError, match="line 3: the row has 3 values and the header 2"):
        list(open_file(source).batches())


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.parquet", b"PAR1 nonsense", "cannot be read as Parquet"),
        ("a.csv", b"a,b\n1,2\n\xff,1\n", "line 3: the row is not UTF-8 text"),
        ("a.csv", b'a,b\n1,"x"y\n', "line 2: the line is not CSV"),
        ("a.csv", b"a,a\n1,1\n", "names a more than once"),
        ("a.jsonl.gz", gzip.compress(b'{"a":1}\n' * 100, mtime=0)[:-20], "cannot be read"),
        ("a.csv.gz", gzip.compress(b"a,b\n" * 100, mtime=0)[:-20], "cannot be read"),
    ],
)
def test_damaged_files_are_refused(tmp_path, name, content, said):
    with pytest.raises(InputError, match=said):
        list(open_file(written(tmp_path / name, content)).batches())


def test_names_without_a_known_format_are_refused(tmp_path):
    for name in ("answers.xlsx", "answers", "answers.parquet.gz"):
        with pytest.raises(InputError, match=r"cannot tell the format; expected a name ending in \.parquet"):
            format_of(name)
    with pytest.raises(InputError, match="does not exist"):
        open_file(tmp_path / "nothing.csv").batches()
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(InputError, match="is a folder"):
        open_file(tmp_path / "folder.csv").batches()


@pytest.mark.parametrize("kind", ["parquet", "jsonl", "csv", "jsonl.gz"])
def test_the_format_of_a_stream_is_recognised_by_its_first_bytes(tmp_path, kind):
    write_frame(pl.DataFrame({"question": ["a"], "c": [1]}), tmp_path / f"a.{kind}")
    with from_stream(io.BytesIO((tmp_path / f"a.{kind}").read_bytes())) as file:
        assert file.format == kind.removesuffix(".gz")
        for _ in range(2):  # a stream can be read once, its copy several times
            (table,) = file.batches()
            assert table.names == ["question", "c"]
    with pytest.raises(InputError, match="standard input is empty"), from_stream(io.BytesIO(b"")):
        pass


def test_outputs_appear_completely_or_not_at_all(tmp_path):
    target = written(tmp_path / "out.jsonl", "old\n")
    with pytest.raises(TypeError), writing(target, "jsonl") as writer:
        writer.write(as_table([{"a": 1}, {(1, 2): 3}]))
    assert target.read_text() == "old\n"
    assert [path.name for path in tmp_path.iterdir()] == ["out.jsonl"]
    with writing(target, "jsonl") as writer:
        writer.write(as_table([{"a": 1}]))
        assert target.read_text() == "old\n"
    assert json.loads(target.read_text()) == {"a": 1}


def test_a_new_file_has_the_usual_permissions(tmp_path):
    with atomic_file(tmp_path / "new") as path:
        path.write_text("x")
    (tmp_path / "usual").write_text("x")
    assert (tmp_path / "new").stat().st_mode == (tmp_path / "usual").stat().st_mode
    with pytest.raises(InputError, match="does not exist"), atomic_file(tmp_path / "no" / "file"):
        pass


def test_standard_output_is_sent_at_the_end(monkeypatch, tmp_path):
    sent = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(sent))
    with writing("-", "csv") as writer:
        writer.write(as_table([{"a": 1}]))
        assert sent.getvalue() == b""
    assert sent.getvalue() == b"a\n1\n"


def test_half_of_a_surrogate_pair_is_written_as_an_escape(tmp_path):
    source = written(tmp_path / "a.jsonl", '{"question": "\\ud800"}\n')
    copied(source, tmp_path / "out.jsonl")
    assert json.loads((tmp_path / "out.jsonl").read_text()) == {"question": "\ud800"}


def test_a_large_parquet_file_is_read_in_parts(tmp_path):
    pl.DataFrame({"a": np.arange(100_000)}).write_parquet(tmp_path / "a.parquet", row_group_size=10_000)
    sizes = [len(table) for table in File(tmp_path / "a.parquet", "parquet", "a").batches(batch_rows=30_000)]
    assert sizes == [30_000, 30_000, 30_000, 10_000]


def test_a_carriage_return_survives_csv(tmp_path):
    with writing(tmp_path / "a.csv", "csv") as writer:
        writer.write(as_table([{"a": "x\ry", "b": "1"}, {"a": "z", "b": 'q"\r\n'}]))
    (table,) = open_file(tmp_path / "a.csv").batches()
    assert list(table.rows()) == [{"a": "x\ry", "b": "1"}, {"a": "z", "b": 'q"\r\n'}]


def test_nan_is_null_in_json(tmp_path):
    write_frame(pl.DataFrame({"a": [float("nan"), 1.0]}), tmp_path / "a.jsonl")
    assert [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()] == [{"a": None}, {"a": 1.0}]


def test_names_are_not_patterns(tmp_path):
    pl.DataFrame({"a": [1]}).write_parquet(tmp_path / "a[1].parquet")
    (table,) = open_file(tmp_path / "a[1].parquet").batches()
    assert len(table) == 1


def test_a_list_on_a_stream_is_read():
    with from_stream(io.BytesIO(b' [{"a": 1}, {"a": 2}]')) as file:
        (table,) = file.batches()
    assert list(table.rows()) == [{"a": 1}, {"a": 2}]


def test_a_json_list_is_read_row_by_row(tmp_path):
    rows = [{"a": number, "b": ["x", None]} for number in range(1000)]
    tables = list(open_file(written(tmp_path / "a.json", json.dumps(rows, indent=1))).batches(batch_rows=300))
    assert [row for table in tables for row in table.rows()] == rows
    assert tables[1].places[0] == 301
    assert str(tables[1].fault(0, "bad")).startswith(f"{tmp_path / 'a.json'} item 301")
    # Many tools write JSON lines under this name.
    (table,) = open_file(written(tmp_path / "b.json", '{"a": 1}\n{"a": 2}\n')).batches()
    assert list(table.rows()) == [{"a": 1}, {"a": 2}]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"[1]", "item 1: it is int, not an object"),
        (b'[{"a": 1}', "it ends where ',' should be"),
        (b'[{"a": 1} {"a": 2}]', "there is '{' where ',' should be"),
        (b'[{"a": 1}] 2', "there is more after its end"),
    ],
)
def test_invalid_json_lists(tmp_path, content, said):
    with pytest.raises(InputError, match=said):
        list(open_file(written(tmp_path / "a.json", content)).batches())


def test_no_rows_are_an_empty_list(tmp_path):
    with writing(tmp_path / "a.json", "json"):
        pass
    assert json.loads((tmp_path / "a.json").read_text()) == []


@pytest.mark.parametrize("separator", [";", "\t", ","])
def test_the_separator_is_recognised_in_the_header(tmp_path, separator):
    text = f'question{separator}c\n"a{separator}b"{separator}1\n'
    (table,) = open_file(written(tmp_path / "a.csv", text)).batches()
    assert list(table.rows()) == [{"question": f"a{separator}b", "c": "1"}]


def test_tsv_files_are_separated_by_tabs(tmp_path):
    with writing(tmp_path / "a.tsv", "csv") as writer:
        writer.write(as_table([{"a": "x,y", "b": 1}]))
    assert (tmp_path / "a.tsv").read_text() == "a\tb\nx,y\t1\n"


@pytest.mark.parametrize("target", ["jsonl", "json", "parquet"])
def test_confidences_from_csv_are_numbers_if_they_can_be(tmp_path, target):
    source = written(tmp_path / "a.csv", "id,confidence,correct,note\n007,0.90,1,5\n008,,0,6\n")
    copied(source, tmp_path / f"out.{target}")
    (table,) = open_file(tmp_path / f"out.{target}").batches()
    assert list(table.rows()) == [
        {"id": "007", "confidence": 0.9, "correct": 1.0, "note": "5"},
        {"id": "008", "confidence": None, "correct": 0.0, "note": "6"},
    ]
    copied(source, tmp_path / "out.csv")
    assert (tmp_path / "out.csv").read_text() == source.read_text()


def test_columns_that_are_added_keep_their_type(tmp_path):
    table = as_table([{"a": 1}]).extended(pl.DataFrame({"decision": pl.Series([None], dtype=pl.String)}))
    with writing(tmp_path / "a.parquet", "parquet") as writer:
        writer.write(table)
    assert pl.read_parquet(tmp_path / "a.parquet").schema["decision"] == pl.String


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.csv", '"note, mine";c\nx;1\n'),
        ("a.csv", "\n\nnote, mine;c;d\nx;1;2\n"),
        ("a.tsv", "note, mine\tc\nx\t1\n"),
        ("a.tsv", "note, mine, too\tc\nx\t1\n"),
    ],
)
def test_commas_within_names_are_not_separators(tmp_path, name, text):
    (table,) = open_file(written(tmp_path / name, text)).batches()
    assert next(iter(table.rows()))["c"] == "1"


def test_a_value_that_is_not_a_number_does_not_change_the_others(tmp_path):
    source = written(tmp_path / "a.csv", "confidence,correct\n0.5,yes\n70%,no\nNA,1\n1_0,\n")
    copied(source, tmp_path / "out.jsonl")
    (table,) = open_file(tmp_path / "out.jsonl").batches()
    assert [(row["confidence"], row["correct"]) for row in table.rows()] == [
        *((0.5, 1.0), (0.7, 0.0), ("NA", 1.0), ("1_0", None)),
    ]


def test_damaged_parquet_is_an_error_that_names_the_file(tmp_path):
    """With these bits flipped polars panics, which is not an Exception; with others it raises its own errors."""
    rows = {
        "id": [str(row) for row in range(40)],
        "confidence": [0.5] * 40,
        "correct": [1, 0] * 20,
        "l": [[1.0, 2.0]] * 40,
    }
    pl.DataFrame(rows).write_parquet(tmp_path / "sound.parquet", compression="uncompressed")
    sound, refused = (tmp_path / "sound.parquet").read_bytes(), 0
    for bit in (2061, 2075, 2901, 8 * (len(sound) - 1)):
        damaged = bytearray(sound)
        damaged[bit // 8] ^= 1 << bit % 8
        (tmp_path / "damaged.parquet").write_bytes(damaged)
        try:
            list(open_file(tmp_path / "damaged.parquet").batches())
        except InputError as error:
            refused += "damaged.parquet cannot be read as Parquet" in str(error)
    assert refused >= 2


TEXT = "question,answer,confidence,correct\n" + "Où est le café ?,à Paris,0.5,Y\n" * 30


@pytest.mark.parametrize(
    ("encoding", "said", "named"),
    [
        ("cp1252", "not UTF-8 text; it may be Latin-1 or Windows-1252", "cp1252"),
        ("utf-16", "is UTF-16 text; expected UTF-8", "utf-16"),
        ("utf-16-le", "is UTF-16-LE text; expected UTF-8", "utf-16-le"),
        ("utf-16-be", "is UTF-16-BE text; expected UTF-8", "utf-16-be"),
    ],
)
@pytest.mark.parametrize("kind", ["csv", "csv.gz", "jsonl", "json"])
def test_another_encoding_is_named_and_read_if_declared(tmp_path, encoding, said, named, kind):
    row = {"question": "Où est le café ?", "answer": "à Paris"}
    text = TEXT if kind.startswith("csv") else (json.dumps(row, ensure_ascii=False) + "\n") * 30
    data = (json.dumps([row] * 30, ensure_ascii=False) if kind == "json" else text).encode(encoding)
    (tmp_path / f"a.{kind}").write_bytes(gzip.compress(data) if kind.endswith("gz") else data)
    file = open_file(tmp_path / f"a.{kind}")
    with pytest.raises(InputError) as caught:
        list(file.batches())
    assert said in str(caught.value)
    assert f"qacal --encoding {named} COMMAND" in str(caught.value)
    with file_options(encoding=named):
        (table,) = file.batches()
    assert [*table.rows()][29] | row == [*table.rows()][29]


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl", "a.json"])
def test_the_wrong_encoding_is_named(tmp_path, name):
    text = TEXT if name == "a.csv" else json.dumps([{"a": "é"}], ensure_ascii=False)
    for encoding in ("ascii", "utf-16"):
        file = open_file(written(tmp_path / name, text + " "))
        with file_options(encoding=encoding), pytest.raises(InputError, match=f"cannot be read as {encoding}"):
            list(file.batches())


@pytest.mark.parametrize("name", ["klingon", "hex", "rot13", "zip", "base64", "undefined"])
def test_no_such_encoding(name):
    with pytest.raises(InputError, match=f"there is no encoding '{name}' of text"), file_options(encoding=name):
        pass


@pytest.mark.parametrize(
    ("right", "wrong"), [("Y", "N"), ("correct", "Incorrect"), ("PASS", "fail"), ("right", "wrong")]
)
def test_words_for_labels(tmp_path, right, wrong):
    (tmp_path / "a.csv").write_text(f"confidence,correct\n0.5,{right}\n0.6,{wrong}\n")
    (batch,) = read(tmp_path / "a.csv", needs_labels=True, needs_text=False)
    assert batch.correct.tolist() == [1.0, 0.0]
