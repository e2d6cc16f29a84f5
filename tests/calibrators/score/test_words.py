"""Weights of words, compared with scikit-learn's."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from sklearn.feature_extraction.text import TfidfVectorizer

from qacal.calibrators.score.texts import PairTexts
from qacal.calibrators.score.words import Vocabulary, fit_vocabulary
from tests.rebuilt import rebuilt

SENTENCES = st.lists(
    st.lists(st.sampled_from(["ant", "bee", "cow", "dog", "eel"]), max_size=8).map(" ".join), min_size=2
)


def ours(questions, answers):
    texts = PairTexts.of(questions, answers)
    vocabulary = fit_vocabulary(texts)
    return vocabulary, None if vocabulary is None else vocabulary.weigh(texts).to_scipy().toarray()


@given(SENTENCES)
def test_weights_are_those_of_scikit_learn(texts):
    vocabulary, matrix = ours(texts, [""] * len(texts))
    sklearn = TfidfVectorizer(sublinear_tf=True, min_df=2, token_pattern=r"\w+")
    try:
        expected = sklearn.fit_transform(texts).toarray()
    except ValueError:  # no word is left
        assert vocabulary is None
        return
    assert vocabulary.questions == len(vocabulary) == expected.shape[1]
    # Columns are in the order of hashes, not of the alphabet.
    by_column = sorted(map(tuple, matrix.T.round(9).tolist()))
    assert by_column == sorted(map(tuple, expected.T.round(9).tolist()))


def test_questions_and_answers_have_separate_words():
    vocabulary, matrix = ours(["ant bee", "ant cow"], ["ant", "ant"])
    assert (vocabulary.questions, len(vocabulary)) == (1, 2)
    np.testing.assert_array_equal(matrix, [[1, 1], [1, 1]])
    new = vocabulary.weigh(PairTexts.of(["dog", "Ant?"], ["ant", ""])).to_scipy().toarray()
    np.testing.assert_array_equal(new, [[0, 1], [1, 0]])


def test_weights_do_not_depend_on_the_batch():
    texts = ["ant bee", "bee bee cow", "cow ant", ""]
    vocabulary, matrix = ours(texts, texts[::-1])
    pairs = [PairTexts.of([q], [a]) for q, a in zip(texts, texts[::-1], strict=True)]
    alone = [vocabulary.weigh(pair).to_scipy().toarray()[0] for pair in pairs]
    np.testing.assert_array_equal(np.array(alone), matrix)


def test_the_most_frequent_words_are_kept(monkeypatch):
    monkeypatch.setattr("qacal.calibrators.score.words._MOST_WORDS", 2)
    vocabulary, _ = ours(["ant bee cow", "ant bee cow", "ant bee"], ["", "", ""])
    whole, _ = ours(["ant bee", "ant bee", "ant bee"], ["", "", ""])
    assert vocabulary.words.tolist() == whole.words.tolist()


def test_a_vocabulary_of_answers_alone():
    vocabulary, matrix = ours(["ant", "bee"], ["cow", "cow"])
    assert isinstance(vocabulary, Vocabulary)
    assert vocabulary.questions == 0
    np.testing.assert_array_equal(matrix, [[1], [1]])
    rebuilt(vocabulary)


def test_selected_and_scaled_rows_are_those_of_scipy():
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(["ant", "bee", "cow", "dog"], 5)) for _ in range(30)]
    words = fit_vocabulary(PairTexts.of(texts, texts[::-1])).weigh(PairTexts.of(texts, texts[::-1]))
    matrix, weights = words.to_scipy(), rng.normal(size=words.shape[1])
    np.testing.assert_allclose(words @ weights, matrix @ weights)
    for keep in (rng.permutation(30), rng.random(30) < 0.5, slice(3, 9)):
        np.testing.assert_array_equal(words[keep].to_scipy().toarray(), matrix.toarray()[keep])
