"""plan(): advice, as `plimsoll plan --json` gives it."""

from __future__ import annotations

import json
import os
import subprocess
from typing import Any, Union

from ._program import error_of, find_program
from ._settings import flags, text_of


def plan(job: Union[str, os.PathLike[str]], **settings: Any) -> dict[str, Any]:
    """Returns what fits and what each setting costs, as a dictionary.

    job: a model or a configuration file. settings: any configuration key, and any flag of
    `plimsoll plan`: gpu="RTX 4090", effective_batch=16, longest=True. A job that does not fit is an
    answer; PlimsollError is raised where there is none."""
    done = subprocess.run([find_program(), "plan", text_of(job), "--json", "-q", *flags(settings)],
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=False)
    try:
        answer: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        raise RuntimeError(f"plimsoll plan ended with {done.returncode} and without an answer"
                           ) from None
    if "error" in answer:
        raise error_of(answer, done.returncode)
    return answer
