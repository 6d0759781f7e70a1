"""The program `plimsoll`: where it lies, and its errors."""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
from typing import Any

from ._library import PlimsollError


def find_program() -> str:
    """Returns the path of the program: the one that PLIMSOLL names, else the one that was installed
    together with this package, else the one on PATH."""
    given = os.environ.get("PLIMSOLL")
    if given:
        return given
    places = [sysconfig.get_path("scripts"), os.path.dirname(sys.executable)]
    user = sysconfig.get_preferred_scheme("user") if sys.version_info >= (3, 10) else "posix_user"
    places.append(sysconfig.get_path("scripts", user))
    places += os.environ.get("PATH", "").split(os.pathsep)
    found = shutil.which("plimsoll", path=os.pathsep.join(places))
    if not found:
        raise FileNotFoundError("the program plimsoll is neither installed together with this "
                                "package nor on PATH; PLIMSOLL may name it")
    return found


def error_of(answer: dict[str, Any], exit_status: int) -> PlimsollError:
    """Returns what an answer with the member `error` says."""
    error = answer["error"]
    place = f"{error['file']}:{error['line']}: " if error.get("file") and error.get("line") else ""
    return PlimsollError(error["code"], place + error["message"], error.get("hint") or "",
                         exit_status)
