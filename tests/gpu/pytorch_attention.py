#!/usr/bin/env python3
"""Causal attention of PyTorch in bf16, forward and backward; one JSON object a line.

Usage: pytorch_attention.py [--cpu] BATCH,LENGTH,HEADS,KV_HEADS,SIZE...
Each back-end that takes the shape is timed apart: FlashAttention as PyTorch has it, and cuDNN's.
Medians of rounds, by events of the GPU; milliseconds.
"""
import json
import statistics
import sys
import time

ROUNDS = 9


class HostClock:
    def __enter__(self):
        self.before = time.perf_counter()
        return self

    def __exit__(self, *error):
        self.ms = 1e3 * (time.perf_counter() - self.before)


class GpuClock:
    def __enter__(self):
        import torch
        self.events = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
        self.events[0].record()
        return self

    def __exit__(self, *error):
        self.events[1].record()
        self.events[1].synchronize()
        self.ms = self.events[0].elapsed_time(self.events[1])


def measure(shape, device, backend, grouped):
    """grouped: heads of keys and values stay as few as they are; else each is repeated before."""
    import torch
    from torch.nn.attention import sdpa_kernel

    batch, length, heads, kv_heads, size = shape
    kv_heads = kv_heads if grouped else heads
    clock = GpuClock if device == "cuda" else HostClock

    def make(n):
        return torch.randn(batch, n, length, size, device=device, dtype=torch.bfloat16,
                           requires_grad=True)
    q, k, v = make(heads), make(kv_heads), make(kv_heads)
    gradient = torch.randn_like(q)
    forward, backward = [], []
    with sdpa_kernel(backend):
        for _ in range(2 + ROUNDS):
            with clock() as one:
                o = torch.nn.functional.scaled_dot_product_attention(
                    q, k, v, is_causal=True, enable_gqa=heads != kv_heads)
            with clock() as two:
                o.backward(gradient)
            forward.append(one.ms)
            backward.append(two.ms)
            q.grad = k.grad = v.grad = None
    return {"ms": statistics.median(forward[2:]), "backward_ms": statistics.median(backward[2:]),
            "grouped": grouped}


def best_of(shape, device, backend):
    """As grouped heads, or without the grouping where this PyTorch does not take it."""
    for grouped in (True, False):
        try:
            return measure(shape, device, backend, grouped)
        except RuntimeError as refused:
            why = str(refused).splitlines()[0][:200]
    return {"refused": why}


def main():
    words = sys.argv[1:]
    device = "cuda"
    if words[0] == "--cpu":
        device = "cpu"
        del words[0]
    from torch.nn.attention import SDPBackend
    backends = {"flash": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION}
    for word in words:
        shape = [int(n) for n in word.split(",")]
        row = dict(zip(("batch", "length", "heads", "kv_heads", "size"), shape))
        for name, backend in backends.items():
            row[name] = best_of(shape, device, backend)
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
