"""train(): a run as a process, and its events."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import Any, Iterator, Optional, Union

from ._program import error_of, find_program
from ._settings import assignments, text_of


def _in_notebook() -> bool:
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return type(shell).__name__ == "ZMQInteractiveShell"


def _bar(wanted: Optional[bool], total: Optional[int]) -> Any:
    """Returns a bar of tqdm: where `wanted` is None in a notebook only, and None without tqdm."""
    if wanted is False or (wanted is None and not _in_notebook()):
        return None
    try:
        from tqdm.auto import tqdm  # type: ignore[import-untyped,unused-ignore]
    except ImportError:
        return None
    return tqdm(total=total, unit="step")


class TrainingRun:
    """A run of `plimsoll train`. Iterating gives its events, one dictionary each, as they happen:
    those of train_log.jsonl. The run goes on whether or not they are read at once."""

    def __init__(self, command: list[str], bar: Any = None) -> None:
        self._bar = bar
        self.summary: Optional[dict[str, Any]] = None
        """The event `summary` of a run that ended well."""
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                        encoding="utf-8")

    @property
    def returncode(self) -> Optional[int]:
        """The exit status of the run; None while it lasts."""
        return self.process.poll()

    def __iter__(self) -> Iterator[dict[str, Any]]:
        assert self.process.stdout is not None
        try:
            for line in self.process.stdout:
                event = json.loads(line)
                if "error" in event:
                    raise error_of(event, self._end())
                self._show(event)
                yield event
        except KeyboardInterrupt:
            self.stop()
            raise
        finally:
            if self._bar is not None:
                self._bar.close()
        status = self._end()
        if status != 0:
            raise RuntimeError(f"plimsoll train ended with {status}")

    def _show(self, event: dict[str, Any]) -> None:
        if event.get("event") == "summary":
            self.summary = event
        if self._bar is not None and event.get("event") == "step":
            self._bar.update(event["step"] - self._bar.n)
            self._bar.set_postfix(loss=event["loss"])

    def _end(self) -> int:
        self.process.communicate()
        return self.process.returncode

    def wait(self) -> Optional[dict[str, Any]]:
        """Reads the events that are left; returns the event `summary`."""
        for _ in self:
            pass
        return self.summary

    def stop(self) -> int:
        """Lets the run finish its step and save a checkpoint; returns its exit status. The same
        call of train() resumes it."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        return self._end()  # it may have events to write until then

    def __enter__(self) -> TrainingRun:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def train(job: Union[str, os.PathLike[str]], *, progress: Optional[bool] = None,
          **overrides: Any) -> TrainingRun:
    """Starts `plimsoll train` and returns the run, whose events can be iterated.

    job: a configuration file. overrides: any configuration key. progress: a bar of tqdm in place of
    the program's lines on stderr; None: in a notebook where tqdm is installed."""
    bar = _bar(progress, overrides.get("max_steps"))
    quiet = ["-q"] if bar is not None else []
    command = [find_program(), "train", text_of(job), "--json", *quiet, *assignments(overrides)]
    return TrainingRun(command, bar)
