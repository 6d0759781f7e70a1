"""Plimsoll: will a fine-tuning job fit, and the training that keeps to the answer.

    from plimsoll import Trainer

    estimate = Trainer("Qwen/Qwen2.5-7B-Instruct").estimate_vram(
        mode="lora", lora_r=256, batch_size=2, max_seq_length=2048)
    print(estimate.summary(), estimate.fits_on_card(16.0))

    for event in plimsoll.train("job.yaml", max_steps=100):
        print(event)

Estimates are those of the shared library libplimsoll. Plans and training are processes of the
program `plimsoll`, which this package brings along.
"""

from ._estimate import Trainer, VRAMEstimate
from ._library import PlimsollError, version
from ._plan import plan
from ._program import find_program
from ._train import TrainingRun, train

__all__ = [
    "PlimsollError",
    "Trainer",
    "TrainingRun",
    "VRAMEstimate",
    "find_program",
    "plan",
    "train",
    "version",
]

__version__ = version()
