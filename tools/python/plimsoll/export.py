"""A finished run into the store of an experiment tracker: `python -m plimsoll.export RUN --to mlflow`.

The tracker's own package writes it (mlflow, or wandb, which must be installed), so that its settings
hold: MLFLOW_TRACKING_URI; WANDB_MODE=offline writes a directory for `wandb sync`.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import pathlib
from typing import Any, Iterator, Optional, Union

_GROUPS = {"step": "train", "eval": "eval"}
_NOT_MEASURED = {"event", "step"}


def read_events(run: Union[str, os.PathLike[str]]) -> Iterator[dict[str, Any]]:
    """The events of train_log.jsonl of a run's directory. A last line that was cut off is left
    out. Raises FileNotFoundError where there is no log."""
    with open(pathlib.Path(run) / "train_log.jsonl", encoding="utf-8") as log:
        for line in log:
            if line.endswith("\n"):
                yield json.loads(line)


def read_settings(run: Union[str, os.PathLike[str]]) -> dict[str, str]:
    """The keys of config.resolved.yaml that have one value each, as it is written there."""
    path = pathlib.Path(run) / "config.resolved.yaml"
    settings: dict[str, str] = {}
    if not path.exists():
        return settings
    for line in path.read_text(encoding="utf-8").splitlines():
        key, colon, value = line.partition(": ")
        if colon and value and key.replace("_", "").isalnum():
            settings[key] = value.split("  #")[0].strip().strip('"')
    return settings


def metrics(events: Iterator[dict[str, Any]]) -> Iterator[tuple[int, dict[str, float]]]:
    """A step and its numbers for each step and each evaluation, named train/loss, eval/loss. What a
    tracker has no number for (NaN, Infinity) is left out."""
    for event in events:
        group = _GROUPS.get(event.get("event", ""))
        if group is None:
            continue
        values = {
            f"{group}/{name}": float(value)
            for name, value in event.items()
            if name not in _NOT_MEASURED and isinstance(value, (int, float))
            and not isinstance(value, bool) and value == value and abs(value) != float("inf")
        }
        yield int(event["step"]), values


def to_mlflow(run: Union[str, os.PathLike[str]], project: Optional[str] = None) -> str:
    """Writes the run into MLflow; returns its id there. project: the experiment."""
    mlflow = importlib.import_module("mlflow")
    if project:
        mlflow.set_experiment(project)
    with mlflow.start_run(run_name=pathlib.Path(run).resolve().name) as started:
        mlflow.log_params({k: v[:500] for k, v in read_settings(run).items()})
        for step, values in metrics(read_events(run)):
            mlflow.log_metrics(values, step=step)
        return str(started.info.run_id)


def to_wandb(run: Union[str, os.PathLike[str]], project: Optional[str] = None) -> str:
    """Writes the run with wandb; returns its id there."""
    wandb = importlib.import_module("wandb")
    started = wandb.init(project=project or "plimsoll", name=pathlib.Path(run).resolve().name,
                         config=read_settings(run))
    for step, values in metrics(read_events(run)):
        started.log(values, step=step)
    started.finish()
    return str(started.id)


_TRACKERS = {"mlflow": to_mlflow, "wandb": to_wandb}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m plimsoll.export", description=__doc__)
    parser.add_argument("run", help="a run's directory, its output_dir")
    parser.add_argument("--to", choices=sorted(_TRACKERS), required=True)
    parser.add_argument("--project", help="the experiment or project; default: the tracker's own")
    words = parser.parse_args()
    try:
        print(_TRACKERS[words.to](words.run, words.project))
    except FileNotFoundError as missing:
        parser.error(f"{missing.filename} is not there: give the output_dir of a run")
    except ModuleNotFoundError as missing:
        parser.error(f"{missing.name} is not installed: pip install {words.to}")


if __name__ == "__main__":
    main()
