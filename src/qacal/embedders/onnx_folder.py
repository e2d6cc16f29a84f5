"""What the folder of an exported encoder says about itself.

Exporters leave these files: model.onnx and tokenizer.json always; tokenizer_config.json and config.json from
transformers; modules.json, 1_Pooling/config.json and sentence_bert_config.json from sentence-transformers.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qacal.embedders.batches import Padding
from qacal.embedders.pooling import Pooling
from qacal.errors import InputError

# Encoders that name no limit get the one that most of them have.
_USUAL_MAX_LENGTH = 512
# Above this a length is a placeholder: transformers writes 10^30 for "no limit".
_NO_LIMIT = 10**6
_CLS_NAMES = ("[CLS]", "<cls>", "<s>")
_PAD_NAMES = ("[PAD]", "<pad>")
# sentence-transformers 6 names the pooling; before, each had a switch of its own.
_POOLINGS: dict[str, Pooling] = {
    "cls": "cls",
    "mean": "mean",
    "lasttoken": "last",
    "pooling_mode_cls_token": "cls",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_lasttoken": "last",
}


@dataclass(frozen=True)
class OnnxFolder:
    """A folder with an exported encoder."""

    path: Path

    def model(self) -> Path:
        """Return the network: model.onnx, or the only .onnx file there is."""
        named, found = self.path / "model.onnx", sorted(self.path.glob("*.onnx"))
        if named in found:
            return named
        if len(found) != 1:
            names = ", ".join(path.name for path in found) or "none"
            raise InputError(f"{self.path} should have model.onnx, or one .onnx file; it has {names}.")
        return found[0]

    def weights(self) -> list[Path]:
        """Return the network's file and, for large ones, the files beside it that hold its weights."""
        return sorted(self.path.glob(f"{self.model().name}*"))

    def tokenizer(self) -> Path:
        """Return the tokenizer's file."""
        path = self.path / "tokenizer.json"
        if not path.is_file():
            raise InputError(
                f"{self.path} has no tokenizer.json. Save it from transformers: tokenizer.save_pretrained(folder)."
            )
        return path

    def pooling(self) -> Pooling:
        """Return the pooling that sentence-transformers wrote down, else the mean."""
        config = self._json("1_Pooling/config.json")
        switches = [mode for mode in config if mode.startswith("pooling_mode_") and config[mode]]
        said = config.get("pooling_mode", switches or "mean")
        mode = said[0] if isinstance(said, list) and len(said) == 1 else said
        if not isinstance(mode, str) or mode not in _POOLINGS:
            raise InputError(f"{self.path}/1_Pooling/config.json asks for {said}; choose ?pooling=cls, mean or last.")
        return _POOLINGS[mode]

    def is_normalised(self) -> bool:
        """Return whether sentence-transformers scales the vectors to length 1."""
        modules = self._json("modules.json")
        return any(str(module.get("type", "")).endswith("Normalize") for module in modules)

    def max_length(self, tokenizer: Any) -> int:
        """Return how many tokens the encoder reads."""
        own = self._json("sentence_bert_config.json").get("max_seq_length")
        if own:
            return int(own)
        said = [
            (tokenizer.truncation or {}).get("max_length"),
            self._json("tokenizer_config.json").get("model_max_length"),
            self._json("config.json").get("max_position_embeddings"),
        ]
        return min((int(value) for value in said if value and 0 < value < _NO_LIMIT), default=_USUAL_MAX_LENGTH)

    def padding(self, tokenizer: Any) -> Padding:
        """Return how the tokenizer fills up short rows."""
        if tokenizer.padding is not None:
            said = tokenizer.padding
            return Padding(said["pad_id"], said["pad_type_id"], said["direction"])
        config = self._json("tokenizer_config.json")
        token = min(self._ids(tokenizer, config.get("pad_token"), _PAD_NAMES), default=0)
        return Padding(token, config.get("pad_token_type_id", 0), config.get("padding_side", "right"))

    def cls(self, tokenizer: Any) -> frozenset[int]:
        """Return the ids that the token for the whole text may have."""
        return self._ids(tokenizer, self._json("tokenizer_config.json").get("cls_token"), _CLS_NAMES)

    def _ids(self, tokenizer: Any, told: Any, usual: tuple[str, ...]) -> frozenset[int]:
        # transformers writes a special token as text, or as an object with its content.
        content = told.get("content") if isinstance(told, dict) else told
        ids = (tokenizer.token_to_id(name) for name in ((content,) if content else usual))
        return frozenset(at for at in ids if at is not None)

    def _json(self, name: str) -> Any:
        path = self.path / name
        try:
            return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
        except ValueError as error:
            raise InputError(f"{path} is not JSON: {error}.") from None
