"""Rows with the columns of each benchmark on the hub, and our own questions."""

TRIVIAQA = {
    "question_id": "tc_7",
    "question": "Which river flows through Cairo?",
    "question_source": "http://www.triviacountry.com/",
    "answer": {
        "value": "Nile",
        "aliases": ["The Nile", "Nile", "River Nile ", ""],
        "normalized_value": "nile",
        "normalized_aliases": ["nile", "river nile"],
        "matched_wiki_entity_name": "",
        "normalized_matched_wiki_entity_name": "",
        "type": "WikipediaEntity",
    },
}
HIDDEN = {"value": "<unk>", "aliases": [], "normalized_value": "<unk>", "normalized_aliases": [], "type": ""}

SCIQ = {
    "question": "What gas do plants take in to make sugar?",
    "distractor1": "oxygen",
    "distractor2": "nitrogen",
    "distractor3": "helium",
    "correct_answer": "carbon dioxide",
    "support": "Plants take in carbon dioxide and give off oxygen.",
}

# Most tasks of BIG-bench list the choices in the text, in another order than the column does.
BIGBENCH = {
    "task": "odd_one_out",
    "idx": 3,
    "inputs": "Pick the odd one out.\n\nQ: Which is no fruit?\n  choice: pear\n  choice: brick\n  choice: plum\nA:",
    "targets": ["brick"],
    "multiple_choice_targets": ["brick", "pear", "plum"],
    "multiple_choice_scores": [1, 0, 0],
}
BIGBENCH_OPEN = {
    "task": "sums",
    "idx": 0,
    "inputs": "What is 3 plus 4?",
    "targets": ["7", "seven"],
    "multiple_choice_targets": [],
    "multiple_choice_scores": [],
}

OPENBOOKQA = {
    "id": "7-980",
    "question_stem": "Ice left in the sun will",
    "choices": {"text": ["melt", "burn", "sing", "grow"], "label": ["A", "B", "C", "D"]},
    "answerKey": "A",
}

MMLU = {
    "question": "Which of these is a prime number?",
    "subject": "elementary_mathematics",
    "choices": ["21", "27", "29", "33"],
    "answer": 2,
}
