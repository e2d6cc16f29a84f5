"""Encoders in a folder, on networks small enough to compute by hand."""

import numpy as np
import pytest

from qacal import InputError
from qacal.embedders import OnnxEmbedder, embedder
from tests.embedders.tiny_onnx import LOOK_UP, ROUNDED, TABLE, TYPES, WITH_TYPES, WORDS, folder, say

QUESTIONS, ANSWERS = ["who wrote emma", "bolero", ""], ["jane austen", "ravel", ""]


def vectors(text):
    """Return the vectors of tokens; a plus marks tokens of the second type."""
    ids = [WORDS.index(word.removesuffix("+")) for word in text.split()]
    return TABLE[ids] + TYPES[[int(word.endswith("+")) for word in text.split()]]


BERT_ROWS = [
    "[CLS] who wrote emma [SEP] jane+ austen+ [SEP]+",
    "[CLS] bolero [SEP] ravel+ [SEP]+",
    "[CLS] [SEP] [SEP]+",
]
XLNET_ROWS = [
    "who wrote emma [SEP] jane+ austen+ [SEP]+ [CLS]",
    "bolero [SEP] ravel+ [SEP]+ [CLS]",
    "[SEP] [SEP]+ [CLS]",
]
XLNET = "$A [SEP] $B:1 [SEP]:1 [CLS]"


def test_the_mean_is_the_default(tmp_path):
    got = embedder(f"onnx:{folder(tmp_path)}").embed(QUESTIONS, ANSWERS)
    np.testing.assert_allclose(got, [vectors(row).mean(axis=0) for row in BERT_ROWS], rtol=1e-6)


@pytest.mark.parametrize(("pooling", "first", "last"), [("cls", 0, -1), ("last", -1, -1)])
def test_cls_is_found_wherever_it_is(tmp_path, pooling, first, last):
    bert, xlnet = folder(tmp_path / "bert"), folder(tmp_path / "xlnet", template=XLNET)
    for path, rows, at in ((bert, BERT_ROWS, first), (xlnet, XLNET_ROWS, last)):
        got = embedder(f"onnx:{path}?pooling={pooling}").embed(QUESTIONS, ANSWERS)
        np.testing.assert_allclose(got, [vectors(row)[at] for row in rows], rtol=1e-6)


def test_cls_in_the_text_is_not_the_cls_token(tmp_path):
    path = folder(tmp_path, template=XLNET)
    got = embedder(f"onnx:{path}?pooling=cls").embed(["who [CLS]"], ["[CLS]"])
    np.testing.assert_allclose(got[0], vectors("[CLS]")[0], rtol=1e-6)


def test_a_tokenizer_without_cls(tmp_path):
    path = folder(tmp_path, LOOK_UP, template="")
    with pytest.raises(InputError, match=r"puts no cls token at either end of a text; use \?pooling=mean or last"):
        embedder(f"onnx:{path}?pooling=cls").embed(["who"], ["austen"])


def test_a_text_without_tokens_has_the_zero_vector(tmp_path):
    path = folder(tmp_path, LOOK_UP, template="")
    got = embedder(f"onnx:{path}").embed(["", "who"], ["", ""])
    np.testing.assert_array_equal(got, [[0, 0, 0], TABLE[WORDS.index("who")]])


def test_only_inputs_that_the_network_has_are_fed(tmp_path):
    got = embedder(f"onnx:{folder(tmp_path, LOOK_UP)}").embed(["bolero"], ["ravel"])
    expected = vectors("[CLS] bolero [SEP] ravel [SEP]").mean(axis=0)
    np.testing.assert_allclose(got[0], expected, rtol=1e-6)


@pytest.mark.parametrize(
    "said",
    [
        {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False},
        {"pooling_mode": "cls"},
        {"pooling_mode": ["cls"]},
    ],
)
def test_the_pooling_of_sentence_transformers_is_followed(tmp_path, said):
    say(folder(tmp_path) / "1_Pooling" / "config.json", word_embedding_dimension=3, **said)
    got = embedder(f"onnx:{tmp_path}")
    assert got.digest == embedder(f"onnx:{tmp_path}?pooling=cls").digest
    np.testing.assert_allclose(got.embed(["bolero"], [""]), [vectors("[CLS]")[0]], rtol=1e-6)
    mean = embedder(f"onnx:{tmp_path}?pooling=mean").embed(QUESTIONS, ANSWERS)
    np.testing.assert_allclose(mean, [vectors(row).mean(axis=0) for row in BERT_ROWS], rtol=1e-6)


def test_an_unknown_pooling_is_named(tmp_path):
    say(folder(tmp_path) / "1_Pooling" / "config.json", pooling_mode_max_tokens=True)
    with pytest.raises(InputError, match=r"asks for \['pooling_mode_max_tokens'\]; use \?pooling=cls"):
        embedder(f"onnx:{tmp_path}")
    assert embedder(f"onnx:{tmp_path}?pooling=mean").dim == 3


def test_the_scale_of_sentence_transformers_is_followed(tmp_path):
    (folder(tmp_path) / "modules.json").write_text('[{"type": "sentence_transformers.models.Normalize"}]')
    got = embedder(f"onnx:{tmp_path}").embed(QUESTIONS, ANSWERS)
    np.testing.assert_allclose(np.linalg.norm(got, axis=1), 1, rtol=1e-6)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("sentence_bert_config.json", {"max_seq_length": 6}),
        ("tokenizer_config.json", {"model_max_length": 6}),
        ("config.json", {"max_position_embeddings": 6}),
    ],
)
def test_the_longer_text_is_cut_at_the_length_in_the_folder(tmp_path, name, said):
    say(folder(tmp_path) / name, **said)
    got = embedder(f"onnx:{tmp_path}").embed(["who"], ["jane austen ravel bolero"])
    np.testing.assert_allclose(got[0], vectors("[CLS] who [SEP] jane+ austen+ [SEP]+").mean(axis=0), rtol=1e-6)


def test_a_huge_length_counts_as_no_limit(tmp_path):
    say(folder(tmp_path) / "tokenizer_config.json", model_max_length=10**30)
    assert embedder(f"onnx:{tmp_path}")._encoder.max_length == 512


def test_dynamic_quantisation_cannot_reach_other_rows(tmp_path):
    path = folder(tmp_path, ROUNDED)
    maker = embedder(f"onnx:{path}")
    alone = np.vstack([maker.embed([q], [a]) for q, a in zip(QUESTIONS, ANSWERS, strict=True)])
    np.testing.assert_array_equal(maker.embed(QUESTIONS, ANSWERS), alone)
    # The batch would matter: all rows together have another largest value.
    encoder = maker._encoder
    batch = encoder.padding.batch(encoder.tokenize(QUESTIONS, ANSWERS))
    one = encoder.padding.batch(encoder.tokenize(QUESTIONS[2:], ANSWERS[2:]))
    assert (encoder.hidden(batch)[2, :3] != encoder.hidden(one)[0]).any()


def test_the_digest_depends_on_content_and_settings_not_on_the_folder(tmp_path):
    one, two = folder(tmp_path / "one"), folder(tmp_path / "two")
    digests = [OnnxEmbedder(one).digest, OnnxEmbedder(one, "cls").digest, OnnxEmbedder(one, "last").digest]
    assert OnnxEmbedder(two).digest == OnnxEmbedder(two, "mean").digest == digests[0]
    folder(two, template=XLNET)
    digests.append(OnnxEmbedder(two).digest)
    folder(two, LOOK_UP)
    digests.append(OnnxEmbedder(two).digest)
    folder(two)
    (two / "model.onnx_data").write_bytes(b"weights of their own")
    digests.append(OnnxEmbedder(two).digest)
    assert len(set(digests)) == 6


def test_problems_of_a_folder_are_named(tmp_path):
    with pytest.raises(InputError, match=r"no/such has no model\.onnx; onnx:DIR needs"):
        embedder("onnx:no/such")
    path = folder(tmp_path)
    with pytest.raises(InputError, match="pooling is 'max'"):
        embedder(f"onnx:{path}?pooling=max")
    (path / "config.json").write_text("{")
    with pytest.raises(InputError, match=r"config.json is not JSON"):
        embedder(f"onnx:{path}")
    (path / "config.json").unlink()
    (path / "tokenizer.json").write_text("{}")
    with pytest.raises(InputError, match=r"tokenizer.json cannot be read as a tokenizer"):
        embedder(f"onnx:{path}")
    (path / "tokenizer.json").unlink()
    with pytest.raises(InputError, match=r"has no tokenizer.json"):
        embedder(f"onnx:{path}")


def test_networks_that_are_not_encoders_are_refused(tmp_path):
    (folder(tmp_path) / "model.onnx").write_bytes(b"not a network")
    with pytest.raises(InputError, match=r"model.onnx cannot be run: "):
        embedder(f"onnx:{tmp_path}")
    folder(tmp_path, [("Gather", ["table", "position_ids"], ["hidden"])])
    with pytest.raises(InputError, match=r"needs the inputs \['position_ids'\]"):
        embedder(f"onnx:{tmp_path}")
    folder(tmp_path, [*WITH_TYPES, ("ReduceMean", ["hidden"], ["sentence"])])
    with pytest.raises(InputError, match=r"expected an output of shape \(rows, tokens, dim\)"):
        embedder(f"onnx:{tmp_path}")


def test_a_row_that_the_network_cannot_read_comes_with_a_remedy(tmp_path, capfd):
    maker = embedder(f"onnx:{folder(tmp_path, [('Gather', ['types', 'input_ids'], ['hidden'])])}")
    with pytest.raises(InputError, match=r"failed on rows of 5 tokens: .* say so in tokenizer_config.json"):
        maker.embed(["who"], ["austen"])
    assert capfd.readouterr() == ("", "")
