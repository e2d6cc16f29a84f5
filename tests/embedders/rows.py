"""Rows that every embedder must read."""

QUESTIONS = ["Who wrote Emma?", "Who wrote Persuasion?", "Who composed Boléro?", "2 + 2?", "What is H2O?"]
ANSWERS = [
    "Jane Austen",
    "Jane Austen",
    "Maurice Ravel",
    "4",
    "water, that is, two atoms of hydrogen and one of oxygen",
]

HARD = {
    "empty": ("", ""),
    "empty answer": ("Who?", ""),
    "white space": (" \t\n ", "\u3000\u00a0"),
    "10,000 words": ("Who?", "word " * 10_000),
    "one word of 10,000 letters": ("a" * 10_000, "b"),
    "emoji": ("🤔👩‍👩‍👧", "🎉"),
    "Chinese": ("谁写了《爱玛》？", "简·奥斯汀"),
    "Arabic": ("من كتب إيما؟", "جين أوستن"),
    "NUL": ("a\x00b", "\x00"),
    "half a surrogate pair": ("\ud800", "x\udfff"),
    "special tokens": ("[CLS] <s> [SEP]", "</s> [PAD] [MASK]"),
    "private use": ("\ue000", "\U0010ffff"),
}
