"""Values of Python as the text that configuration keys are read from."""

from __future__ import annotations

import json
import os
from typing import Any


def text_of(value: object) -> str:
    """Returns what a YAML file or a command line would say for `value`."""
    if isinstance(value, os.PathLike):
        return str(os.fspath(value))
    if isinstance(value, str):
        return value
    return json.dumps(value)  # true, 2e-05, [1, 2]: YAML reads each of them


def assignments(settings: dict[str, Any]) -> list[str]:
    """Returns `key=value` for each setting; None leaves a key at its default."""
    return [f"{key}={text_of(value)}" for key, value in settings.items() if value is not None]


def flags(settings: dict[str, Any]) -> list[str]:
    """Returns `--key=value` for each setting, and `--key` for True, which takes flags that are no
    keys too."""
    written = []
    for key, value in settings.items():
        name = "--" + key.replace("_", "-")
        if value is True:
            written.append(name)
        elif value is not None:
            written.append(f"{name}={text_of(value)}")
    return written
