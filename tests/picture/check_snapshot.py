"""check_snapshot.py - the planned step as Python reads it: structure, balance, peak, names.

The structure is that of torch.cuda.memory._dump_snapshot; PLIMSOLL names the binary.
"""
import json
import os
import pickle
import subprocess
import sys
import tempfile

EVENT = {"action", "addr", "size", "stream", "time_us", "frames"}
SEGMENT = {"device", "address", "total_size", "allocated_size", "active_size", "requested_size",
           "stream", "segment_type", "segment_pool_id", "is_expandable", "frames", "blocks"}
BLOCK = {"address", "size", "requested_size", "state", "frames"}


def load(mode):
    with tempfile.TemporaryDirectory() as directory:
        path = os.path.join(directory, "step.pickle")
        command = [os.environ["PLIMSOLL"], "plan", "SmolLM2-135M", "--mode", mode, "--batch-size",
                   "2", "--max-seq-length", "256", "--json", "--snapshot", path]
        answer = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
        with open(path, "rb") as file:
            assert file.read(2) == b"\x80\x02", "protocol 2"
            file.seek(0)
            return pickle.load(file), answer


def check_frames(holder):
    for frame in holder["frames"]:
        assert set(frame) == {"name", "filename", "line"}, frame


def check_segments(snapshot, answer):
    job, batch = snapshot["segments"]
    for segment in (job, batch):
        assert set(segment) == SEGMENT, set(segment) ^ SEGMENT
        assert segment["segment_pool_id"] == (0, 0) and segment["is_expandable"] is False
        at = segment["address"]
        for block in segment["blocks"]:
            assert set(block) == BLOCK, block
            assert block["address"] == at, "blocks tile their segment"
            at += block["size"]
            check_frames(block)
        assert at == segment["address"] + segment["total_size"]
    assert job["total_size"] == answer["bytes"]["job_arena"]
    assert batch["total_size"] == answer["bytes"]["batch_arena"]


def check_trace(snapshot, answer):
    (trace,) = snapshot["device_traces"]
    live, peak, names, time = {}, 0, set(), 0
    for event in trace:
        assert set(event) == EVENT, event
        check_frames(event)
        assert event["time_us"] >= time or event["action"] == "alloc", "time goes forward"
        time = max(time, event["time_us"])
        if event["action"] == "alloc":
            assert event["addr"] not in live, event
            live[event["addr"]] = event["size"]
            names.add(event["frames"][0]["name"])
        elif event["action"] == "free_completed":
            assert live.pop(event["addr"]) == event["size"]
        peak = max(peak, sum(live.values()))
    assert {"layers.0.qkv", "layers.29.gu", "embed"} <= names, sorted(names)[:20]
    ledger = {row["category"]: row["bytes"] for row in answer["ledger"]}
    waste = ledger["alignment"] + ledger["fragmentation"]
    assert peak <= answer["bytes"]["arena"]
    # alignment pads every tensor; what is left is what tensors hold at the peak of the plan
    assert answer["peak_phase"] != "step" or peak >= answer["bytes"]["arena"] - waste, peak
    resident = sum(block["requested_size"] for block in snapshot["segments"][0]["blocks"])
    assert sum(live.values()) == resident, "only job tensors outlive the step"


for mode in ("lora", "full"):
    snapshot, answer = load(mode)
    assert set(snapshot) >= {"segments", "device_traces", "allocator_settings"}
    check_segments(snapshot, answer)
    check_trace(snapshot, answer)
sys.exit(0)
