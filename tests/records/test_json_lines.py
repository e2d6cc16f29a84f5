"""JSON lines that are read as structs are what they are when Python reads them one by one, whatever is in them."""

import gzip
import json

import numpy as np
import polars as pl
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from qacal.errors import InputError
from qacal.records import files
from qacal.records.files import File, open_file
from qacal.records.reading import Reading, read
from qacal.records.table import ObjectTable, StructRows
from qacal.records.text_files import file_options
from qacal.records.writers import writing

NUMBERS = """
1 0 -1 -0 0.5 1.0 -0.0 1e5 1E-7 1e-07 0.1e1 1.10 0.30000000000000004 1e400 5e-324 01 1. .5 +1 0x1 1_0 - 1// 1,2 1}{
9223372036854775807 9223372036854775808 -9223372036854775809 123456789012345678901234567890 0.1000000000000000055511
"""
OTHERS = r"""
NaN Infinity -Infinity nan inf true false null True None [] [1] [[]] {} {"a":1} 'a' 1}{"a":1 "a","b":"c" "" "a" "1"
"0.5" "null" "true" "\u00e9" "\ud800" "\ud83d\ude00" "\n" "\/" "/" "\"" "\\" "\b" "\u0000" "\u001f" "\u0022" "\q" "a
":" ",\"b\":" "é" "😀"
"""
SPACES = [
    '"\t"',
    '"\x01"',
    "\x01",
    '"\x7f"',
    '"\u2028"',
    '"\x85"',
    '"\ufeff"',
    r'", \"b\": "',
    '", "',
    '": "',
    '"a" ',
    "{}, {}",
    '" "',
]
TOKENS = (NUMBERS + OTHERS).split() + SPACES
KEYS = ['"a"', '"b"', '"c"', '"A"', r'"\u0061"', '""', "a", '"a": 1, "a"', '"b" ']
PLAIN = [
    '{"a": 1, "b": "x", "c": 0.5}',
    '{"a":1,"b":"x","c":0.5}',
    '{"a": true, "b": null, "c": "é"}',
    r'{"b":"\"","a":-1}',
]


def is_json(text):
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


@st.composite
def some_line(draw, tokens, forms):
    comma, colon = draw(st.sampled_from([(", ", ": "), (",", ":"), *forms]))
    names = draw(st.one_of(st.just(KEYS[:3]), st.just(KEYS[:2]), st.lists(st.sampled_from(KEYS), max_size=4)))
    return "{" + comma.join(f"{name}{colon}{draw(st.sampled_from(tokens))}" for name in names) + "}"


STRANGE = [*TOKENS, *PLAIN, "", " ", "{", "}", "{}", "\x00", "\r", '{"a": 1', "\ufeff" + PLAIN[0]]
ENDS = ["\n", "\n", "\n", "\r\n", "\r", " \n", "\u2028\n", "\xa0\n"]
ENDING = st.sampled_from(ENDS)
ANY = st.tuples(some_line(TOKENS, [(" , ", " :")]) | st.sampled_from(STRANGE), ENDING)
ALIKE = st.tuples(
    st.sampled_from([one for one in TOKENS if is_json(one)]).map(lambda one: f'{{"c": 1, "a":{one},"b":2}}'), ENDING
)
VALID = st.tuples(some_line([one for one in TOKENS if is_json(one)], [(",", ": ")]).filter(is_json), st.just("\n"))


def shown(row):
    """A row as text, whatever the order of its names."""
    return repr(sorted(row.items()))


def contents(path):
    """All that there is to know about the rows of a file."""
    faults, out = [], []
    file = File(path, "jsonl", "a.jsonl")
    for table in file.batches(faults.append):
        kept = table.only(table.places % 3 > 0)
        columns = [[(name, *map(repr, some.column(name))) for name in [*some.names, "none"]] for some in (table, kept)]
        single = [shown(table.row(at)) for at in range(len(table))]
        rows = [[*map(shown, table.rows())], single, [*map(shown, kept.rows())]]
        out.append((table.places.tolist(), table.names, kept.names, columns, rows))
    return out, [(str(fault), fault.kind, repr(fault.row)) for fault in faults]


class Python:
    """A decoder of JSON lines that takes none, so that those of Python take all."""

    def decode(self, line):
        raise ValueError


def by_python(path):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "decoded", lambda block: None)
        patch.setattr("msgspec.json.Decoder", Python)
        return contents(path)


def test_any_lines_are_the_same_rows_in_both_ways(tmp_path):
    path = tmp_path / "a.jsonl"
    used = 0

    @settings(max_examples=300, deadline=None)
    @given(
        st.sampled_from(PLAIN), st.lists(ALIKE, max_size=6) | st.lists(VALID, max_size=6) | st.lists(ANY, max_size=3)
    )
    @example(PLAIN[0], [('{"a": 1.5, "b": 2, "c": 1}', "\n"), ('{"a": true, "b": "", "c": null}', "\n")])
    @example(PLAIN[0], [('{"a": 1, "b": "x", "d": [1]}', "\n"), ("{}", "\n"), ("{} {}", "\n")])
    @example(PLAIN[0], [('{"a": 1, "b": "x", "c": 0.5, "d": 1}', "\n"), ('{"c": 0.5, "b": "x", "a": 1}', "\n")])
    @example(PLAIN[1], [('{"a":1,"a":2,"b":"x","c":0.5}', "\n"), ("[1]", "\n"), ("5", "\n")])
    @example(PLAIN[1], [("null", "\n")])
    @example(PLAIN[1], [(PLAIN[1] + PLAIN[1], "\n")])
    @example(PLAIN[3], [('{"a":1,\n"b":2}', "\n"), (PLAIN[3] * 2, "\n")])
    @example(PLAIN[3], [('{"a":1,"b":2}\n\n', ""), (PLAIN[3] * 2, "\n")])
    @example(PLAIN[3], [('{"a":1,"b":[{"a":1},\n{}]}', "\n"), (PLAIN[3] * 2, "\n")])
    @example("\n" + PLAIN[3], [(PLAIN[3] * 4, "\n")])
    @example(PLAIN[3], [(f'{{"a":1,"b":{"1" * 5000}}}', "\n")])
    @example(PLAIN[3], [(f'{{"a":1,"b":{"[" * 5000}}}', "\n")])
    @example(PLAIN[3], [(f'{{"a":1,"b":{"[" * 5000}{"]" * 5000}}}', "\n")])
    def check(plain, others):
        nonlocal used
        lines = [plain + "\n"] * (len(others) + 2) + [line + end for line, end in others] + [plain]
        block = "".join(lines).encode("utf-8", "surrogatepass")
        path.write_bytes(block)
        used += files.decoded(block) is not None
        assert contents(path) == by_python(path)

    check()
    assert used > 30


def each_by_python(path, encoding):
    """The number and the object of each line, and the numbers of lines that are none."""
    rows, bad = [], []
    with path.open(encoding=encoding, errors="surrogateescape", newline="") as text:
        for number, line in enumerate(text, 1):
            line = line.removeprefix("\ufeff") if number == 1 else line
            if not line.isspace():
                try:
                    line.encode()
                    row = json.loads(line)
                    assert isinstance(row, dict)
                    rows.append((number, repr(row)))
                except (ValueError, AssertionError):
                    bad.append(number)
    return rows, bad


def test_lines_in_blocks_of_any_size_are_those_of_python(tmp_path):
    path, used = tmp_path / "a.jsonl", 0
    junk = st.sampled_from([b"", b" ", b"\xff", b'{"a": "\xe9"}', b"{'a'}", b"\xef\xbb\xbf{}", b'{"a": "\xc3\xa9"}'])
    lines = st.tuples(st.sampled_from(PLAIN).map(str.encode) | junk, st.sampled_from([b"\n", b"\n", b"\r\n", b"\r"]))

    @settings(max_examples=200, deadline=None)
    @given(
        st.lists(lines, min_size=1, max_size=9),
        st.sampled_from([5, 30, 64, 200, 4000]),
        st.sampled_from([None, "ascii", "cp1252", "utf-8-sig"]),
        st.booleans(),
        st.integers(1, 40),
    )
    @example([(b'{"a": "\xc3\xa9"}', b"\n")], 64, "ascii", False, 9)
    @example([(PLAIN[0].encode(), b"\r")] * 9, 30, None, False, 9)
    def check(lines, size, encoding, is_packed, batch_rows):
        nonlocal used
        plain = (PLAIN[0].encode() + lines[0][1]) * 20
        content = plain + b"".join(line + end for line, end in lines) + PLAIN[0].encode()
        path.write_bytes(content)
        expected = each_by_python(path, encoding or "utf-8")
        path.write_bytes(gzip.compress(content) if is_packed else content)
        faults, found = [], []
        with pytest.MonkeyPatch.context() as patch, file_options(encoding=encoding):
            patch.setattr(files, "_BLOCK_BYTES", size)
            for table in File(path, "jsonl", "a.jsonl").batches(faults.append, batch_rows):
                assert 0 < len(table) <= batch_rows
                used += isinstance(table.objects, StructRows)
                found += zip(table.places.tolist(), map(repr, table.rows()), strict=True)
        assert (found, [int(fault.place.removeprefix("line ")) for fault in faults]) == expected

    check()
    assert used > 30


@pytest.mark.parametrize("options", [{}, {"ensure_ascii": False}, {"ensure_ascii": False, "separators": (",", ":")}])
def test_ordinary_lines_are_structs_and_come_out_as_they_were(tmp_path, options, monkeypatch):
    texts = ["plain", 'a "quoted", "text": x', "two\nlines\ttab", "back\\slash \\", "é 驹 😀", ": x", "x, ", "", None]
    rows = [
        {
            "id": i,
            "question": f"{texts[i % 8]} {i}",
            "answer": texts[i % 9],
            "confidence": i % 7 / 8,
            "correct": i % 2 < 1,
            "tokens": [i, 0.5],
        }
        for i in range(500)
    ]
    lines = [json.dumps(row, **options) + "\n" for row in rows]
    decoded = files.decoded("".join(lines).encode())
    assert isinstance(decoded, StructRows)
    assert list(decoded) == rows

    (tmp_path / "a.jsonl").write_text("".join(lines))
    outputs = []
    for _ in range(2):
        batches = list(read(tmp_path / "a.jsonl", Reading(on_fault=lambda fault: None), needs_labels=True))
        with writing(tmp_path / "out.jsonl", "jsonl") as writer:
            for batch in batches:
                writer.write(batch.with_evidence(pl.DataFrame({"calibrated": batch.confidence})))
        values = [[*batch.question, *batch.answer, *batch.confidence, *batch.correct, *batch.ids] for batch in batches]
        outputs.append((values, (tmp_path / "out.jsonl").read_bytes()))
        monkeypatch.setattr(files, "decoded", lambda block: None)
    assert outputs[0] == outputs[1]


@pytest.mark.parametrize(
    "block",
    [
        '{"a":\r1}\n{"a":2}',
        "[1]",
        "5",
        "[1]\n[2]",
        '{"a":1,"b":2}\n{"a":{}\n,"b":1}{"a":1,"b":2}',
        '{"a":1}{"a":2}',
        "\n",
    ],
)
def test_blocks_with_lines_that_are_not_one_object_are_left_to_python(block):
    assert files.decoded(block.encode()) is None


def test_a_line_that_is_too_large_is_named(tmp_path):
    lines = [b'{"a": "%s"}' % (b"x" * 990)] * 3000
    lines[2500] = b'{"a": "%s"}' % (b"x" * 2**20)
    (tmp_path / "a.jsonl").write_bytes(b"\r\n".join(lines))
    with file_options(max_row_mb=1), pytest.raises(InputError, match=r"a\.jsonl line 2501: "):
        list(open_file(tmp_path / "a.jsonl").batches())


def test_columns_are_added_and_replaced_for_some_rows_too():
    rows = {
        "jsonl": files.decoded(b'{"a": 1, "b": "x"}\n{"a": 2, "b": "y"}\n{"a": 3, "b": "z"}'),
        "json": [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}, {"a": 3, "b": "z"}],
    }
    for objects in rows.values():
        table = ObjectTable("a", "line", np.arange(1, 4), objects)
        table = table.extended(
            pl.DataFrame({"p": [0.1, 0.2, 0.3], "q": [7, 8, 9]}, schema={"p": pl.Float32, "q": pl.Int8})
        )
        table = table.extended(pl.DataFrame({"p": [0.5, 0.25, 0.75], "b": ["u", "v", "w"]}))
        some = table.only(np.array([True, False, True]))
        expected = [{"a": 1, "b": "u", "p": 0.5, "q": 7}, {"a": 3, "b": "w", "p": 0.75, "q": 9}]
        assert [*some.rows()] == [some.row(0), some.row(1)] == some.frame().to_dicts() == expected
        assert some.frame().schema["q"] == pl.Int8
        assert (some.names, some.column("q"), some.places.tolist()) == (["a", "b", "p", "q"], [7, 9], [1, 3])
        with pytest.raises(ValueError, match="zip"):
            list(table.extended(pl.DataFrame({"p": [0.1], "q": [1], "b": ["x"]})).rows())


def test_names_of_rows_may_be_any_text_and_come_in_the_order_of_the_first_row():
    first = b'{"": 1, "a b": 2, "field_0": 3, "class": 4, "\\u0041": 5}'
    rows = files.decoded(first + b'\r\n{"A":0,"class":1,"field_0":2,"a b":3,"":4}')
    assert rows.names == ["", "a b", "field_0", "class", "A"]
    assert [[*row.values()] for row in rows] == [[1, 2, 3, 4, 5], [4, 3, 2, 1, 0]]
    assert [rows.column(name) for name in ("field_0", "A", "field_1")] == [[3, 2], [5, 0], [None, None]]
    assert [*rows.take(np.array([1]))] == [rows[1]]


def test_a_line_that_is_not_json_is_told_with_its_number(tmp_path):
    lines = ['{"a": 1}'] * 40_000
    lines[33_000] = '{"a": 1'
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    faults = []
    tables = list(open_file(tmp_path / "a.jsonl").batches(faults.append))
    assert [fault.place for fault in faults] == ["line 33001"]
    assert sum(map(len, tables)) == 39_999
    assert tables[-1].places[-1] == 40_000
