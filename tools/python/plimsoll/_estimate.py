"""Trainer.estimate_vram() and its answer."""

from __future__ import annotations

import dataclasses
import json
import os
from typing import Any, Optional, Union

from . import _library
from ._library import PlimsollError
from ._settings import assignments, text_of


@dataclasses.dataclass(frozen=True)
class VRAMEstimate:
    """What a job needs, read off the plan that training would allocate. 1 GB is 10^9 bytes."""

    total_gb: float
    model_weights_gb: float
    lora_adapter_gb: float
    optimizer_state_gb: float
    activations_gb: float
    kv_cache_gb: float
    overhead_gb: float
    param_count_billions: float
    mode: str
    batch_size: int
    gradient_accumulation: int
    max_seq_length: int
    lora_r: Optional[int]
    notes: list[str]

    gradients_gb: float
    logits_gb: float
    workspace_gb: float
    context_gb: float
    host_ram_gb: float
    param_count: int
    trainable_param_count: int
    recommended_batch_size: Optional[int]
    """The largest that fits; None without a budget."""
    verdict: str
    """"fits", "tight" or "no"; "unknown" without a budget."""
    fits: Optional[bool]
    refusal: Optional[str]
    """The code that training would be refused with, such as "RUNTIME_DOES_NOT_FIT"."""

    card_bytes: int
    """What fits_on_card() compares with: the needs on a GPU where no device was named."""
    answer: dict[str, Any] = dataclasses.field(repr=False)
    """The whole answer, as `plimsoll estimate-vram --json` prints it."""
    _summary: str = dataclasses.field(repr=False)

    def fits_on_card(self, vram_gb: float) -> bool:
        """Returns True if the job needs at most `vram_gb`, on exact bytes."""
        return vram_gb * 1e9 >= self.card_bytes

    def summary(self) -> str:
        """Returns one line: what was asked, the total, and the parts that it is the sum of."""
        parts = " + ".join(f"{name}={getattr(self, field):.1f}" for name, field in _PARTS)
        return f"{self._summary} ({parts})"


_PARTS = (("weights", "model_weights_gb"), ("lora", "lora_adapter_gb"),
          ("gradients", "gradients_gb"), ("optim", "optimizer_state_gb"),
          ("activations", "activations_gb"), ("logits", "logits_gb"),
          ("workspace", "workspace_gb"), ("kv", "kv_cache_gb"), ("overhead", "overhead_gb"))
_FROM_ANSWER = {f.name for f in dataclasses.fields(VRAMEstimate)} - {
    "card_bytes", "answer", "_summary"}


_REFUSED = 3
"""The exit status of the program for a job that is refused before it starts."""
_TOO_LARGE = "RUNTIME_FULL_FT_MODEL_TOO_LARGE"


class Trainer:
    """A model, and settings that every question about it has in common."""

    def __init__(self, model: Union[str, os.PathLike[str]], **settings: Any) -> None:
        """model: a directory with config.json, an id of the Hugging Face hub cache, or a name or id
        of the built-in catalogue. settings: any configuration key, and gpu="NAME".

        With mode="full" raises PlimsollError of the code RUNTIME_FULL_FT_MODEL_TOO_LARGE where
        training would be refused for the number of parameters alone."""
        self.model = text_of(model)
        self.settings = settings
        if settings.get("mode") == "full":
            self._refuse_too_large()

    def _refuse_too_large(self) -> None:
        estimate = self.estimate_vram()
        if estimate.refusal == _TOO_LARGE:
            raise PlimsollError(
                _TOO_LARGE, f"mode: full would train {estimate.param_count_billions:.3f} billion "
                "parameters on the device alone, more than full_ft_ceiling_billions",
                "full_ft_offload=True, or mode=\"lora\"; Trainer(MODEL).estimate_vram("
                "mode=\"full\") answers what it would need", _REFUSED)

    def estimate_vram(self, mode: Optional[str] = None, lora_r: Optional[int] = None,
                      batch_size: Union[int, str, None] = None,
                      max_seq_length: Optional[int] = None, **settings: Any) -> VRAMEstimate:
        """Plans one step and bills it; nothing is loaded and no GPU is needed.

        mode is "lora" unless it is given, "qlora", "full" or "inference". Raises PlimsollError
        where the question has no answer; a job that does not fit is an answer."""
        asked = {"mode": mode, "lora_r": lora_r, "batch_size": batch_size,
                 "max_seq_length": max_seq_length, **settings}
        merged = {**self.settings, **{k: v for k, v in asked.items() if v is not None}}
        how = str(merged.pop("mode", "lora"))
        text, summary, card_bytes = _library.estimate_vram(self.model, how, assignments(merged))
        answer = json.loads(text)
        return VRAMEstimate(card_bytes=card_bytes, answer=answer, _summary=summary,
                            **{name: answer[name] for name in _FROM_ANSWER})
