"""Encoders of transformers and their ONNX exports, compared with transformers row by row, without padding."""

import shutil
from importlib.util import find_spec

import numpy as np
import pytest
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

from qacal import InputError
from qacal.embedders import HuggingFaceEmbedder, embedder
from tests.embedders.rows import HARD

# torch and transformers are imported inside tests: they take seconds, and collecting tests must not.
pytestmark = [
    pytest.mark.heavy,
    pytest.mark.skipif(not (find_spec("torch") and find_spec("transformers")), reason="needs torch and transformers"),
    # The exporter of torch warns about its deprecation and about every size that it takes as fixed.
    pytest.mark.filterwarnings("ignore"),
]

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = [*SPECIAL, "who", "wrote", "emma", "bolero", "?", "jane", "austen", "maurice", "ravel", "the", "a", "of"]
QUESTIONS = ["Who wrote Emma?", "Who wrote the bolero of Maurice Ravel?", "Bolero?", "", "who " * 100]
ANSWERS = ["Jane Austen", "Ravel", "", "", "the bolero"]
MAX_LENGTH = 32
SIZES = {
    "bert": {
        "hidden_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 32,
        "max_position_embeddings": MAX_LENGTH,
    },
    "distilbert": {"dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 32, "max_position_embeddings": MAX_LENGTH},
    "xlnet": {"d_model": 16, "n_layer": 2, "n_head": 2, "d_inner": 32},
}


def tokenizer(kind):
    """BERT's pairs begin with cls; XLNet's end with it, have types of their own and are padded on the left."""
    import transformers

    words = {word: at for at, word in enumerate(WORDS)}
    backend = Tokenizer(models.WordPiece(words, unk_token="[UNK]"))
    backend.normalizer = normalizers.BertNormalizer()
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    pair = "$A [SEP] $B:1 [SEP]:1 [CLS]:2" if kind == "xlnet" else "[CLS] $A [SEP] $B:1 [SEP]:1"
    ends = [("[CLS]", 2), ("[SEP]", 3)]
    backend.post_processor = processors.TemplateProcessing(single="$A", pair=pair, special_tokens=ends)
    inputs = ["input_ids", "attention_mask"] + ["token_type_ids"] * (kind != "distilbert")
    special = {f"{name.lower()}_token": f"[{name}]" for name in ("PAD", "UNK", "CLS", "SEP", "MASK")}
    side = {"padding_side": "left", "pad_token_type_id": 3} if kind == "xlnet" else {}
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=backend, model_max_length=MAX_LENGTH, model_input_names=inputs, **special, **side
    )


def network(kind, seed=0):
    import torch
    import transformers

    torch.manual_seed(seed)
    config = transformers.AutoConfig.for_model(kind, vocab_size=len(WORDS), **SIZES[kind])
    out = transformers.AutoModel.from_config(config).eval()
    with torch.no_grad():  # Initial weights are so small that all vectors are nearly equal.
        for weights in out.parameters():
            weights.mul_(3)
    return out


@pytest.fixture(scope="module", params=SIZES)
def kind(request):
    return request.param


@pytest.fixture(scope="module")
def saved(kind, tmp_path_factory):
    path = tmp_path_factory.mktemp(kind)
    tokenizer(kind).save_pretrained(path)
    network(kind).save_pretrained(path)
    return path


def expected(path, pooling, kind, questions=QUESTIONS, answers=ANSWERS):
    """The slow version: transformers alone, one row at a time."""
    import torch
    import transformers

    reader, model = (
        transformers.AutoTokenizer.from_pretrained(path),
        transformers.AutoModel.from_pretrained(path).eval(),
    )
    rows = []
    for question, answer in zip(questions, answers, strict=True):
        # In a list: transformers takes a single empty answer as missing, and the row as not a pair.
        read = reader([question], [answer], truncation="longest_first", max_length=MAX_LENGTH, return_tensors="pt")
        with torch.no_grad():
            hidden = model(**read).last_hidden_state[0]
        at = {"cls": -1 if kind == "xlnet" else 0, "last": -1}
        rows.append(hidden.mean(dim=0) if pooling == "mean" else hidden[at[pooling]])
    return torch.stack(rows).numpy()


@pytest.mark.parametrize("pooling", ["cls", "mean", "last"])
def test_vectors_are_those_of_transformers(saved, kind, pooling):
    got = embedder(f"hf:{saved}?pooling={pooling}").embed(QUESTIONS, ANSWERS)
    np.testing.assert_allclose(got, expected(saved, pooling, kind), atol=1e-5)


def test_cls_is_the_default_and_rows_differ(saved, kind):
    maker = embedder(f"hf:{saved}")
    assert (maker.name, maker.dim) == (f"hf:{saved}", 16)
    got = maker.embed(QUESTIONS, ANSWERS)
    np.testing.assert_allclose(got, expected(saved, "cls", kind), atol=1e-5)
    assert np.abs(got[0] - got[1]).max() > 1e-3


def test_the_batch_does_not_matter(saved):
    maker = embedder(f"hf:{saved}")
    alone = np.vstack([maker.embed([q], [a]) for q, a in zip(QUESTIONS, ANSWERS, strict=True)])
    np.testing.assert_allclose(maker.embed(QUESTIONS, ANSWERS), alone, atol=1e-5)


def test_hard_rows_have_finite_vectors(saved):
    assert np.isfinite(embedder(f"hf:{saved}").embed(*zip(*HARD.values(), strict=True))).all()


@pytest.fixture(scope="module")
def exported(saved, tmp_path_factory):
    pytest.importorskip("onnx")
    import torch
    import transformers

    class TokenVectors(torch.nn.Module):
        """A network with one output, which is what an export needs."""

        def __init__(self, model, names):
            super().__init__()
            self.model, self.names = model, names

        def forward(self, *values):
            return self.model(**dict(zip(self.names, values, strict=True))).last_hidden_state

    into = tmp_path_factory.mktemp("exported")
    reader, model = transformers.AutoTokenizer.from_pretrained(saved), transformers.AutoModel.from_pretrained(saved)
    reader.save_pretrained(into)
    read = dict(reader(QUESTIONS[:2], ANSWERS[:2], padding=True, return_tensors="pt"))
    torch.onnx.export(
        TokenVectors(model, list(read)).eval(),
        tuple(read.values()),
        into / "model.onnx",
        input_names=list(read),
        output_names=["last_hidden_state"],
        dynamic_axes={name: {0: "rows", 1: "tokens"} for name in [*read, "last_hidden_state"]},
        dynamo=False,
    )
    return into


@pytest.mark.parametrize("pooling", ["cls", "mean", "last"])
def test_the_export_to_onnx_gives_the_same_vectors(exported, saved, kind, pooling):
    got = embedder(f"onnx:{exported}?pooling={pooling}").embed(QUESTIONS, ANSWERS)
    np.testing.assert_allclose(got, expected(saved, pooling, kind), atol=1e-5)


def test_exports_with_dynamic_quantisation_do_not_depend_on_the_batch(exported, tmp_path):
    quantization = pytest.importorskip("onnxruntime.quantization")
    quantization.quantize_dynamic(exported / "model.onnx", tmp_path / "model.onnx")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(exported / name, tmp_path)
    maker = embedder(f"onnx:{tmp_path}")
    alone = np.vstack([maker.embed([q], [a]) for q, a in zip(QUESTIONS, ANSWERS, strict=True)])
    np.testing.assert_array_equal(maker.embed(QUESTIONS, ANSWERS), alone)


def test_the_digest_depends_on_weights_tokenizer_and_pooling(saved, kind, tmp_path):
    first = embedder(f"hf:{saved}").digest
    assert embedder(f"hf:{saved}").digest == first
    tokenizer(kind).save_pretrained(tmp_path)
    network(kind).save_pretrained(tmp_path)
    assert embedder(f"hf:{tmp_path}").digest == first
    others = [embedder(f"hf:{tmp_path}?pooling=mean").digest]
    network(kind, seed=1).save_pretrained(tmp_path)
    others.append(embedder(f"hf:{tmp_path}").digest)
    network(kind).save_pretrained(tmp_path)
    cased = tokenizer(kind)
    cased.backend_tokenizer.normalizer = normalizers.BertNormalizer(lowercase=False)
    cased.save_pretrained(tmp_path)
    others.append(embedder(f"hf:{tmp_path}").digest)
    assert len({first, *others}) == 4


def test_loading_is_silent_and_leaves_the_settings_of_transformers(saved, capfd):
    import transformers

    logging = transformers.utils.logging
    before = logging.get_verbosity(), logging.is_progress_bar_enabled()
    embedder(f"hf:{saved}").embed(QUESTIONS, ANSWERS)
    assert (logging.get_verbosity(), logging.is_progress_bar_enabled()) == before
    assert capfd.readouterr() == ("", "")


def test_a_checkpoint_without_a_pooler_has_a_digest(tmp_path):
    import transformers

    tokenizer("bert").save_pretrained(tmp_path)
    config = transformers.AutoConfig.for_model("bert", vocab_size=len(WORDS), **SIZES["bert"])
    transformers.BertForMaskedLM(config).save_pretrained(tmp_path)
    assert HuggingFaceEmbedder(str(tmp_path)).digest == HuggingFaceEmbedder(str(tmp_path)).digest


def test_a_checkpoint_without_all_its_weights_is_refused(tmp_path):
    tokenizer("bert").save_pretrained(tmp_path)
    whole = network("bert")
    weights = {name: value for name, value in whole.state_dict().items() if "layer.1." not in name}
    whole.save_pretrained(tmp_path, state_dict=weights)
    with pytest.raises(InputError, match=r"lacks the weights .*it is not a complete encoder"):
        embedder(f"hf:{tmp_path}")


def test_a_folder_that_is_not_there_is_named():
    with pytest.raises(InputError, match=r"hf:/no/such/folder cannot be loaded; give a folder, or a name on the hub"):
        embedder("hf:/no/such/folder")
