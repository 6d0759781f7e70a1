"""libplimsoll by ctypes: estimator/api/plimsoll.h without its structs."""

from __future__ import annotations

import ctypes
import os
import pathlib
from typing import Any

SONAME = "libplimsoll.so.0"


class PlimsollError(Exception):
    """A refusal or a failure, as the program reports it.

    code is stable ("MODEL_FILE", "RUNTIME_DOES_NOT_FIT"); exit_status is that of the program."""

    def __init__(self, code: str, message: str, hint: str = "", exit_status: int = 1) -> None:
        super().__init__(f"[{code}] {message}" + (f" ({hint})" if hint else ""))
        self.code = code
        self.message = message
        self.hint = hint
        self.exit_status = exit_status

    def __reduce__(self) -> Any:
        return type(self), (self.code, self.message, self.hint, self.exit_status)


class _Error(ctypes.Structure):  # struct pl_vram_error
    _fields_ = [
        ("exit_status", ctypes.c_int),
        ("code", ctypes.c_char * 64),
        ("message", ctypes.c_char * 2048),
        ("hint", ctypes.c_char * 512),
    ]

    def exception(self) -> PlimsollError:
        return PlimsollError(self.code.decode(), self.message.decode(errors="replace"),
                             self.hint.decode(errors="replace"), self.exit_status)


def _open() -> ctypes.CDLL:
    """The library that PLIMSOLL_LIBRARY names, else the one of this package, else the system's."""
    given = os.environ.get("PLIMSOLL_LIBRARY")
    packaged = pathlib.Path(__file__).with_name(SONAME)
    library = ctypes.CDLL(given or (str(packaged) if packaged.exists() else SONAME))
    estimate, text = ctypes.c_void_p, ctypes.c_char_p
    number = ctypes.c_uint32
    prototypes: dict[str, tuple[Any, list[Any]]] = {
        "pl_estimate_vram": (estimate, [text, text, number, number, number, ctypes.POINTER(text),
                                        ctypes.POINTER(_Error)]),
        "pl_vram_json": (text, [estimate]),
        "pl_vram_card_bytes": (ctypes.c_uint64, [estimate]),
        "pl_estimate_summary": (ctypes.c_size_t, [estimate, text, ctypes.c_size_t]),
        "pl_estimate_free": (None, [estimate]),
        "pl_version": (text, []),
    }
    for name, (result, arguments) in prototypes.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


_library = _open()


def version() -> str:
    """Returns the version of the library."""
    return str(_library.pl_version().decode())


def _summary(estimate: int) -> str:
    room = ctypes.create_string_buffer(_library.pl_estimate_summary(estimate, None, 0) + 1)
    _library.pl_estimate_summary(estimate, room, len(room))
    return room.value.decode()


def estimate_vram(model: str, mode: str, settings: list[str]) -> tuple[bytes, str, int]:
    """Returns the answer as JSON, its summary, and the bytes that a card needs."""
    error = _Error()
    texts = (ctypes.c_char_p * (len(settings) + 1))(*[s.encode() for s in settings], None)
    estimate = _library.pl_estimate_vram(model.encode(), mode.encode(), 0, 0, 0, texts,
                                         ctypes.byref(error))
    if not estimate:
        raise error.exception()
    try:
        return (_library.pl_vram_json(estimate), _summary(estimate),
                _library.pl_vram_card_bytes(estimate))
    finally:
        _library.pl_estimate_free(estimate)
