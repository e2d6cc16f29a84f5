"""Any encoder of text that was exported to ONNX."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from qacal.embedders.base import Progress, Vectors
from qacal.embedders.batches import TokenRow
from qacal.embedders.digests import file_digest, settings_digest
from qacal.embedders.encoder import TOKENS_A_BATCH, Encoder
from qacal.embedders.onnx_folder import OnnxFolder
from qacal.embedders.onnx_runtime import is_batch_dependent, network, tokenizer_of
from qacal.embedders.packages import optional_package
from qacal.embedders.pooling import as_pooling
from qacal.errors import InputError, MissingPackageError


class OnnxEmbedder:
    """Embed (question, answer), read as one pair, with an encoder from a folder: model.onnx and tokenizer.json.

    Choose it for an encoder of your own language or field, without torch. What the folder says of pooling, length
    and padding is followed (sentence-transformers and transformers write it down).

    Networks with dynamic quantisation round by the largest value in a batch. They are run one row at a time, which is
    slower, so that a row has the same vector when a model is fitted and when it is applied.

    Parameters
    ----------
    directory : the folder.
    pooling : "cls", "mean" or "last"; None reads it from the folder, and takes the mean if that is silent.

    Examples
    --------
    >>> OnnxEmbedder("no/such/folder")
    Traceback (most recent call last):
    ...
    qacal.errors.InputError: there is no folder no/such/folder; onnx:DIR needs one with model.onnx and tokenizer.json.
    """

    def __init__(self, directory: str | Path, pooling: str | None = None) -> None:
        self.directory, self.pooling = Path(directory), pooling
        if not self.directory.is_dir():
            raise InputError(f"there is no folder {directory}; onnx:DIR needs one with model.onnx and tokenizer.json.")
        folder = OnnxFolder(self.directory)
        self._encoder = _encoder(folder, pooling)
        self.dim = self._encoder.dim
        self.digest = _digest(folder, self._encoder)

    def __reduce__(self) -> tuple[type[OnnxEmbedder], tuple[Path, str | None]]:
        """Pickle and copy by loading anew: the files are the state."""
        return OnnxEmbedder, (self.directory, self.pooling)

    @property
    def name(self) -> str:
        """What a user types."""
        return f"onnx:{self.directory}" + (f"?pooling={self.pooling}" if self.pooling else "")

    def embed(self, questions: Sequence[str], answers: Sequence[str], progress: Progress | None = None) -> Vectors:
        """Return one vector per row."""
        return self._encoder.embed(questions, answers, progress)


def _encoder(folder: OnnxFolder, pooling: str | None) -> Encoder:
    model, tokenizer = folder.model(), _tokenizer(folder.tokenizer())
    hidden, padding, max_length = network(model), folder.padding(tokenizer), folder.max_length(tokenizer)
    # Exporters may leave the length of the vectors open, so one token is asked for its own.
    dim = hidden(padding.batch([TokenRow([0], [0])])).shape[-1]
    return Encoder(
        tokenize=tokenizer_of(tokenizer, max_length),
        hidden=hidden,
        dim=dim,
        padding=padding,
        pooling=folder.pooling() if pooling is None else as_pooling(pooling),
        cls=folder.cls(tokenizer),
        normalised=folder.is_normalised(),
        max_length=max_length,
        tokens_a_batch=0 if is_batch_dependent(model) else TOKENS_A_BATCH,
    )


def _tokenizer(path: Path) -> Any:
    try:
        return optional_package("tokenizers", "onnx").Tokenizer.from_file(str(path))
    except MissingPackageError:
        raise
    except Exception as error:  # the tokenizers package raises nothing more particular
        raise InputError(f"{path} cannot be read as a tokenizer: {error}") from None


def _digest(folder: OnnxFolder, encoder: Encoder) -> str:
    return settings_digest(
        kind="onnx",
        weights=" ".join(file_digest(path) for path in folder.weights()),
        tokenizer=file_digest(folder.tokenizer()),
        **encoder.settings(),
    )
