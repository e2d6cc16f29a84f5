"""Questions that are chats: the last turn of the user is read, and the whole chat identifies the question."""

import json

import polars as pl
import pytest

from qacal import BadRows, InputError, QACalibrator, split
from qacal.records.reading import Reading, read
from tests.cli.test_cli import ok

CHAT = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Capital of Peru?"},
    {"role": "assistant", "content": "Lima."},
    {"role": "user", "content": [{"type": "text", "text": "And Chile?"}, {"type": "image_url", "image_url": {}}]},
]
OTHER = [{"role": "user", "content": "Largest city of Peru?"}, *CHAT[2:]]


def row(question, **others):
    return {"question": question, "answer": "Santiago", "confidence": 0.9, "correct": 1, **others}


def batch_of(records, **options):
    (batch,) = read(records, Reading(**options), needs_labels=True)
    return batch


def forms(tmp_path, questions):
    """Yield the same rows in every form."""
    rows = [row(question) for question in questions]
    yield rows
    for name, write in (("a.jsonl", "\n".join(map(json.dumps, rows))), ("a.json", json.dumps(rows))):
        (tmp_path / name).write_text(write)
        yield tmp_path / name
    texts = [{**one, "question": json.dumps(one["question"])} for one in rows]
    yield texts
    pl.DataFrame(texts).write_csv(tmp_path / "a.csv")
    yield tmp_path / "a.csv"
    plain = [[{**turn, "content": str(turn["content"])} for turn in question] for question in questions]
    pl.DataFrame([row(question) for question in plain]).write_parquet(tmp_path / "a.parquet")


def test_the_last_turn_of_the_user_is_the_question_in_every_form(tmp_path):
    batches = [batch_of(records) for records in forms(tmp_path, [CHAT, OTHER])]
    assert len(batches) == 5
    for batch in batches:
        assert batch.question == ["And Chile?", "And Chile?"]
        assert batch.ids.tolist() == batches[0].ids.tolist()
        assert batch.question_hashes().tolist() == batch.ids.tolist()
    # The same last turn after other turns is another question.
    assert len({*batches[0].ids.tolist()}) == 2


@pytest.mark.parametrize("kind", ["polars", "pandas", "parquet"])
def test_frames_with_lists_of_messages(tmp_path, kind):
    plain = [
        {"role": turn["role"], "content": "x" if isinstance(turn["content"], list) else turn["content"]}
        for turn in CHAT
    ]
    frame = pl.DataFrame([row(plain), row(plain[:2])])
    if kind == "parquet":
        frame.write_parquet(tmp_path / "rows.parquet")
        frame = tmp_path / "rows.parquet"
    if kind == "pandas":
        pytest.importorskip("pyarrow")
        frame = frame.to_pandas()
    assert batch_of(frame).question == ["x", "Capital of Peru?"]


def test_a_reply_at_the_end_does_not_change_the_question():
    answered = [*CHAT, {"role": "assistant", "content": "Santiago."}]
    batch = batch_of([row(CHAT), row(answered)])
    assert batch.question[1] == "And Chile?"
    assert batch.ids[0] == batch.ids[1]


def test_a_chat_of_one_turn_is_its_text():
    batch = batch_of([row("2 + 2?"), row([{"role": "user", "content": "2 + 2?"}])])
    assert batch.ids[0] == batch.ids[1]


def test_text_that_only_looks_like_a_chat_stays_text():
    texts = ["[1, 2] sorted?", '[{"role": "user"', '[{"role": "system", "content": "Be brief."}]', '["role"]']
    assert batch_of([row(text) for text in texts]).question == texts


def test_messages_without_a_question_are_bad_rows():
    for question in (
        [],
        [{"role": "assistant", "content": "Hi"}],
        ["text"],
        [{"role": "user", "content": [{}]}],
        [{"role": "user", "content": True}],
    ):
        with pytest.raises(InputError, match=r"question is .*; expected text, or chat messages .* turn of the user"):
            batch_of([row(question)])
    bad = BadRows()
    assert len(batch_of([row(CHAT), row([])], on_fault=bad, max_bad=0.5)) == 1
    assert bad.count == 1


def test_a_model_takes_chats_and_passes_them_through():
    questions = [[*CHAT[:3], {"role": "user", "content": f"What is {i} plus {i}?"}] for i in range(300)]
    records = [row(one, correct=i % 3 > 0, confidence=0.8 + 0.1 * (i % 6 > 0)) for i, one in enumerate(questions)]
    model = QACalibrator(partition="bisecting:1").fit(records)
    assert model.calibrate(records[:1])[0]["question"] == questions[0]
    chat = model.explain(questions[7], "14", 0.9)
    assert chat["calibrated"] == model.explain("What is 7 plus 7?", "14", 0.9)["calibrated"]
    assert all("plus" in one["question"] for group in model.describe_groups() for one in group.examples)


def test_chats_are_split_and_checked_as_questions(tmp_path):
    questions = [[*CHAT[:2], {"role": "user", "content": f"More of {i}?"}] for i in range(40)]
    path = tmp_path / "chats.jsonl"
    path.write_text("\n".join(json.dumps(row(question, answer=str(i))) for i in (1, 2) for question in questions))
    ok("split", path, "-o", tmp_path / "train.jsonl", "--rest", tmp_path / "test.jsonl")
    sides = [
        {line["question"][-1]["content"] for line in map(json.loads, (tmp_path / name).read_text().splitlines())}
        for name in ("train.jsonl", "test.jsonl")
    ]
    assert not sides[0] & sides[1]
    assert len(sides[0] | sides[1]) == 40
    assert len({*split([question[-1]["content"] for question in questions]).tolist()}) == 2
