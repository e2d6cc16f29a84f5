"""Any encoder of text that transformers can load, from the Hugging Face hub or a folder."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from qacal.embedders.base import Vectors, optional_package, settings_digest
from qacal.embedders.encoder import Batch, Encoder, EncoderEmbedder, Padding, TokenRow, as_pooling, max_length_of
from qacal.errors import InputError

# The digest of a tokenizer contains its tokens of this: case, accents, word pieces, other scripts, digits, a long word.
_PROBE = ("Who wrote “Emma” in 1815?", "Jane AUSTEN, née à Steventon; 简·奥斯汀, جين 🖋 antidisestablishmentarianism")


class HuggingFaceEmbedder(EncoderEmbedder):
    """Embed (question, answer), read as one pair, with an encoder of transformers.

    The paper's are "distilbert-base-uncased" and "xlnet-base-cased", pooled at the cls token. Choose it to repeat the
    paper or to try an encoder of the hub; for production, export it to ONNX, which needs no torch. This is the only
    embedder that uses the network: it downloads a model that is not in the hub's cache yet.

    Parameters
    ----------
    model : a name on the hub, or a folder.
    pooling : "cls" as in the paper, "mean" or "last".
    """

    def __init__(self, model: str, pooling: str = "cls") -> None:
        self.model, self.pooling = model, as_pooling(pooling)
        tokenizer, network = _load(model)
        max_length = max_length_of(tokenizer.model_max_length, getattr(network.config, "max_position_embeddings", None))
        encoder = Encoder(
            tokenize=_tokenize(tokenizer, max_length),
            hidden=_hidden(tokenizer, network),
            dim=int(network.config.hidden_size),
            padding=Padding(tokenizer.pad_token_id or 0, tokenizer.pad_token_type_id, tokenizer.padding_side),
            pooling=self.pooling,
            max_length=max_length,
            cls=frozenset() if tokenizer.cls_token_id is None else frozenset({int(tokenizer.cls_token_id)}),
        )
        # Not the tokenizer's files, which differ between releases.
        (row,) = encoder.tokenize([_PROBE[0]], [_PROBE[1]])
        words = sorted(tokenizer.get_vocab().items())
        reads = settings_digest(words=repr(words), ids=repr(row.ids), types=repr(row.type_ids))
        super().__init__(encoder, model, pooling, kind="hf", weights=_weights_digest(network), tokenizer=reads)

    @property
    def name(self) -> str:
        return f"hf:{self.model}" + ("" if self.pooling == "cls" else f"?pooling={self.pooling}")


def _load(model: str) -> tuple[Any, Any]:
    optional_package("torch", "hf")
    transformers = optional_package("transformers", "hf")
    with _quiet(transformers):
        try:
            tokenizer = transformers.AutoTokenizer.from_pretrained(model)
            network, report = transformers.AutoModel.from_pretrained(model, output_loading_info=True)
        except (OSError, ValueError) as error:
            reason = str(error).strip().partition("\n")[0]
            raise InputError(f"hf:{model} cannot be loaded; give a folder, or a name on the hub. {reason}") from None
    # transformers replaces missing weights by random numbers. Only those of the pooler are never used.
    missing = sorted(name for name in report["missing_keys"] if "pooler." not in name)
    if missing:
        raise InputError(
            f"hf:{model} lacks the weights {missing[:3]} (of {len(missing)}); it is not a complete encoder."
        )
    return tokenizer, network.float().eval()


def _tokenize(tokenizer: Any, max_length: int) -> Callable[[list[str], list[str]], list[TokenRow]]:
    def tokenize(questions: list[str], answers: list[str]) -> list[TokenRow]:
        read = tokenizer(
            questions, answers, truncation="longest_first", max_length=max_length, return_token_type_ids=True
        )
        return [TokenRow(*row) for row in zip(read["input_ids"], read["token_type_ids"], strict=True)]

    return tokenize


def _hidden(tokenizer: Any, network: Any) -> Callable[[Batch], Vectors]:
    torch = optional_package("torch", "hf")
    # As transformers does: what the tokenizer offers, if the network takes it. DistilBERT takes no token types.
    accepted = inspect.signature(network.forward).parameters
    names = [name for name in ("input_ids", "attention_mask", "token_type_ids") if name in accepted]
    names = [name for name in names if name in tokenizer.model_input_names]

    def hidden(batch: Batch) -> Vectors:
        with torch.inference_mode():
            out = network(**{name: torch.from_numpy(getattr(batch, name)) for name in names})
        return np.asarray(out.last_hidden_state.numpy(), dtype=np.float32)

    return hidden


def _weights_digest(network: Any) -> str:
    """Return the sha256 of the weights as they are in memory, whatever kind of file they came in."""
    digest = hashlib.sha256()
    for name, weights in sorted(network.named_parameters()):
        if "pooler." not in name:
            digest.update(name.encode())
            digest.update(weights.detach().contiguous().numpy().data)
    return digest.hexdigest()


@contextmanager
def _quiet(transformers: Any) -> Iterator[None]:
    """Keep transformers from writing to the terminal while it loads; then leave its settings as they were."""
    logging = transformers.utils.logging
    level, has_bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity(logging.CRITICAL)
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if has_bars:
            logging.enable_progress_bar()
