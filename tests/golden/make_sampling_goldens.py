#!/usr/bin/env python3
"""Computes which tokens survive the sampling filters, with numpy in double precision.

Writes sampling.txt, read by src/ops/sampling/filters_test.cc. One case is two lines:
  temperature top_k typical_p top_p min_p : logits in thousandths
  ids of the survivors, ascending
Leaves out cases whose cut is within 1e-5 of a threshold, because single precision may decide there.

Usage: make_sampling_goldens.py > sampling.txt      (numpy 2.4)
"""
import numpy as np


def softmax(y):
    e = np.exp(y - y.max())
    return e / e.sum()


def prefix(order, p, target):
    """The smallest prefix of `order` whose probability reaches `target`; None if it is close."""
    sums = np.cumsum(p[order])
    count = int(np.searchsorted(sums, target)) + 1
    if np.abs(sums - target).min() < 1e-5:
        return None
    return order[:count]


def survivors(logits, temperature, top_k, typical_p, top_p, min_p):
    y = (logits - logits.max()) / np.float32(temperature)
    y = y.astype(np.float64)
    ids = np.arange(len(y))
    if top_k > 0:
        order = np.lexsort((ids, -y[ids]))
        ids = np.sort(ids[order[:top_k]])
    if typical_p < 1:
        p = softmax(y[ids])
        entropy = -(p * np.log(p)).sum()
        distance = np.abs(-np.log(p) - entropy)
        # Ties by id need equal logits to have equal distances, which they have entry by entry.
        order = prefix(np.lexsort((ids, distance)), p, typical_p)
        if order is None:
            return None
        if len(order) < len(ids):
            next_distance = np.sort(np.delete(distance, order))[0]
            gap = next_distance - distance[order[-1]]
            if 0 < gap < 1e-5:
                return None
        ids = np.sort(ids[order])
    if top_p < 1:
        p = softmax(y[ids])
        order = prefix(np.lexsort((ids, -p)), p, top_p)
        if order is None:
            return None
        ids = np.sort(ids[order])
    if min_p > 0:
        p = softmax(y[ids])
        ratio = p / p.max()
        if np.abs(ratio - min_p).min() < 1e-5 and min_p < 1:
            return None
        ids = ids[ratio >= min_p] if min_p < 1 else ids[y[ids] == y[ids].max()]
    return ids


def main():
    random = np.random.default_rng(20240607)
    written = 0
    while written < 400:
        count = int(random.choice([1, 2, 5, 33, 100, 300]))
        scale = random.choice([0.2, 1, 4, 10])
        thousandths = np.round(random.standard_normal(count) * scale * 1000).astype(np.int64)
        if random.random() < 0.3:  # many equal logits
            thousandths = thousandths // 1000 * 1000
        logits = thousandths.astype(np.float32) / np.float32(1000)
        temperature = float(random.choice([0.5, 1, 1.5, 3]))
        which = random.integers(0, 16)
        top_k = int(random.integers(1, count + 3)) if which & 1 else 0
        typical_p = float(random.choice([0.125, 0.5, 0.875, 0.96875])) if which & 2 else 1.0
        top_p = float(random.choice([2**-10, 0.25, 0.75, 0.9375, 0.984375])) if which & 4 else 1.0
        min_p = float(random.choice([2**-10, 0.0625, 0.25, 1.0])) if which & 8 else 0.0
        ids = survivors(logits, temperature, top_k, typical_p, top_p, min_p)
        if ids is None:
            continue
        print(temperature, top_k, typical_p, top_p, min_p, ":", *thousandths)
        print(*ids)
        written += 1


main()
