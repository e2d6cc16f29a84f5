"""An encoder of text that was exported to ONNX, run by the loader of MiniLM."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from qacal.embedders.base import Progress, Vectors
from qacal.embedders.encoder import TOKENS_A_BATCH, Encoder, Padding, Pooling, TokenRow, as_pooling, max_length_of
from qacal.embedders.minilm import is_batch_dependent, network, tokenizer_of
from qacal.embedders.packages import file_digest, optional_package, settings_digest
from qacal.errors import InputError

# sentence-transformers 6 names the pooling; before, each had a switch of its own.
_POOLINGS: dict[str, Pooling] = {
    "cls": "cls",
    "mean": "mean",
    "lasttoken": "last",
    "pooling_mode_cls_token": "cls",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_lasttoken": "last",
}


class OnnxEmbedder:
    """Embed (question, answer), read as one pair, with an encoder from a folder: model.onnx and tokenizer.json.

    Choose it for an encoder of your own language or field, without torch. Pooling, scale and length are read from the
    files that sentence-transformers and transformers write beside the encoder.

    Networks with dynamic quantisation round by the largest value in a batch. They are run one row at a time, which is
    slower, so that a row has the same vector when a model is fitted and when it is applied.

    Parameters
    ----------
    directory : the folder.
    pooling : "cls", "mean" or "last"; by default that of the folder, or else the mean.

    Examples
    --------
    >>> OnnxEmbedder("no/such/folder")
    Traceback (most recent call last):
    ...
    qacal.errors.InputError: no/such/folder has no model.onnx; onnx:DIR needs a folder with model.onnx and
    tokenizer.json.
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
        hidden, max_length = network(model), self._max_length(tokenizer)
        modules, named = self._json("modules.json"), self._json("tokenizer_config.json").get("cls_token")
        # transformers writes a special token as text, or as an object with its content.
        cls = named.get("content") if isinstance(named, dict) else named
        ids = (tokenizer.token_to_id(name) for name in ([cls] if cls else ("[CLS]", "<cls>", "<s>")))
        self._encoder = Encoder(
            tokenize=tokenizer_of(tokenizer, max_length),
            hidden=hidden,
            # Exporters may leave the length of the vectors open: a batch of one token shows it.
            dim=hidden(Padding().batch([TokenRow([0], [0])])).shape[-1],
            padding=Padding(),
            pooling=self._pooling() if pooling is None else as_pooling(pooling),
            cls=frozenset(id_ for id_ in ids if id_ is not None),
            normalised=any(str(module.get("type", "")).endswith("Normalize") for module in modules),
            max_length=max_length,
            tokens_a_batch=0 if is_batch_dependent(model) else TOKENS_A_BATCH,
        )
        self.dim = self._encoder.dim
        # The weights of a large network are in further files: model.onnx_data.
        weights = " ".join(file_digest(path) for path in sorted(self.directory.glob("model.onnx*")))
        self.digest = settings_digest(
            kind="onnx", weights=weights, tokenizer=file_digest(words), **self._encoder.settings()
        )

    def __reduce__(self) -> tuple[type[OnnxEmbedder], tuple[Path, str | None]]:
        """Pickle and copy by loading the files again."""
        return OnnxEmbedder, (self.directory, self.pooling)

    @property
    def name(self) -> str:
        """The name that :func:`~qacal.embedders.embedder` takes."""
        return f"onnx:{self.directory}" + (f"?pooling={self.pooling}" if self.pooling else "")

    def embed(self, questions: Sequence[str], answers: Sequence[str], progress: Progress | None = None) -> Vectors:
        """Return one vector per row."""
        return self._encoder.embed(questions, answers, progress)

    def _json(self, name: str) -> Any:
        path = self.directory / name
        try:
            return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
        except ValueError as error:
            raise InputError(f"{path} is not JSON: {error}.") from None

    def _max_length(self, tokenizer: Any) -> int:
        own = self._json("sentence_bert_config.json").get("max_seq_length")
        if own:
            return max_length_of(own)
        return max_length_of(
            (tokenizer.truncation or {}).get("max_length"),
            self._json("tokenizer_config.json").get("model_max_length"),
            self._json("config.json").get("max_position_embeddings"),
        )

    def _pooling(self) -> Pooling:
        config = self._json("1_Pooling/config.json")
        switches = [mode for mode in config if mode.startswith("pooling_mode_") and config[mode]]
        asked = config.get("pooling_mode", switches or "mean")
        mode = asked[0] if isinstance(asked, list) and len(asked) == 1 else asked
        if not isinstance(mode, str) or mode not in _POOLINGS:
            raise InputError(
                f"{self.directory}/1_Pooling/config.json asks for {asked}; use ?pooling=cls, mean or last."
            )
        return _POOLINGS[mode]
