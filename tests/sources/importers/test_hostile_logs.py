"""Logs with arbitrary values anywhere: each row is imported, skipped or an input error; nothing else is raised."""

import json
import tempfile
from contextlib import suppress
from copy import deepcopy
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qacal.errors import InputError
from qacal.sources.elicitation import patterns
from qacal.sources.importers import Selection, import_log
from tests.sizes import examples
from tests.sources.importers import logs

WRITERS = {
    "lm-eval": ("lm-eval", logs.lm_eval),
    "lm-eval repeats": ("lm-eval", logs.lm_eval_repeats),
    "inspect": ("inspect", logs.inspect_json),
    "inspect epochs": ("inspect", logs.inspect_epochs),
    "openai-batch": ("openai-batch", logs.openai_batch),
    "promptfoo": ("promptfoo", logs.promptfoo_json),
    "langfuse": ("langfuse", logs.langfuse),
    "mlflow": ("mlflow", logs.mlflow_json),
    "deepeval": ("deepeval", logs.deepeval),
    "deepeval conversations": ("deepeval", logs.deepeval_conversations),
}
STRANGE = [
    *(None, True, 0, -1, 10**400, float("nan"), float("inf"), 1e308),
    *("", "x", "[", "{}", '["a"]', "\ud800", "5" * 5000, "9" * 400),
    *([], {}, [[]], [None], [{}, 3], [{"role": 1, "content": {}}]),
    *({"": None}, {"value": {}}, {"role": "user"}),
]


def places(value, path=()):
    """Yield every path into nested objects and lists."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, part in inner:
        yield (*path, step)
        yield from places(part, (*path, step))


def change(value, path, new):
    for step in path[:-1]:
        value = value[step]
    value[path[-1]] = new


def loaded(path):
    text = path.read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()] if path.suffix == ".jsonl" else json.loads(text)


def written(path, value):
    rows = [json.dumps(row) + "\n" for row in value] if path.suffix == ".jsonl" else [json.dumps(value)]
    path.write_text("".join(rows), encoding="utf-8")


@pytest.mark.parametrize("kind", WRITERS)
@examples(150, 8)
@given(data=st.data())
def test_nothing_but_an_input_error_is_raised(kind, data):
    format_, write = WRITERS[kind]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        paths = write(folder)
        file = data.draw(
            st.sampled_from(sorted(path for path in folder.rglob("*.json*") if path.parent.name != "labels"))
        )
        content = loaded(file)
        for _ in range(data.draw(st.integers(1, 3))):
            found = list(places(content))
            if found:
                change(content, data.draw(st.sampled_from(found)), deepcopy(data.draw(st.sampled_from(STRANGE))))
        written(file, content)
        with suppress(InputError):
            imported = import_log(format_, paths, keep_unscored=data.draw(st.booleans()), on_fault=lambda fault: None)
            assert imported.account.read == imported.account.kept + sum(imported.account.dropped.values())
            for column in ("confidence", "correct"):
                assert imported.frame[column].drop_nulls().is_between(0, 1).all()


@pytest.mark.parametrize("kind", WRITERS)
def test_values_that_are_nested_too_deeply(kind, tmp_path):
    format_, write = WRITERS[kind]
    paths = write(tmp_path)
    file = sorted(path for path in tmp_path.rglob("*.json*") if path.parent.name != "labels")[-1]
    deep = "[" * 900 + "]" * 900
    text = file.read_text(encoding="utf-8")
    file.write_text(
        text.replace('"Capital of France?"', deep).replace("Capital of France?", "Capital?"), encoding="utf-8"
    )
    with suppress(InputError):
        assert import_log(format_, paths, on_fault=lambda fault: None).account.read == (6 if "epochs" in kind else 3)


# The first backtracks 2^40 times; the second takes a high power of the length.
@pytest.mark.parametrize(
    ("pattern", "reply"),
    [(r"So it is (\w+)|((a|a)+)$", "a" * 40 + "!"), (r"So it is (\w+)|a.*b.*c.*d.*x", "abcd" * 3_000)],
)
def test_a_pattern_that_takes_forever(tmp_path, monkeypatch, pattern, reply):
    monkeypatch.setattr(patterns, "_SECONDS", 0.1)
    (path,) = logs.lm_eval_repeats(tmp_path, [{"function": "regex", "regex_pattern": pattern}])
    honest = import_log("lm-eval", [path])
    path.write_text(path.read_text(encoding="utf-8").replace("So it is 100.", reply), encoding="utf-8")
    with pytest.raises(InputError, match=rf"takes more than 0.1 s for a text of {len(reply):,} characters"):
        import_log("lm-eval", [path])
    assert honest.account.kept == 3


def test_metadata_with_a_name_for_each_row(tmp_path):
    cases = [logs.deepeval_case(n, logs.CASES[0], metadata={"confidence": 0.5, f"key {n}": n}) for n in range(600)]
    found = import_log("deepeval", [logs.write_json(tmp_path / "test_run_1.json", {"testCases": cases})], Selection())
    assert found.account.kept == 600
    assert len(found.frame.columns) == 500
    assert found.account.columns_left_out == 600 + 7 - 500
    assert "107 columns left out" in str(found.account)
