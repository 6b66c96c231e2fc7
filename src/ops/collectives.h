// Operations in which the ranks of a group exchange values. A group's ranks compute each step
// together; each has its own Ops and a shard of the weights (tensor parallelism, arXiv:1909.08053).
//
// All ranks run the same collectives in the same order, with tensors of the same shapes. If one
// rank fails, the results of all are unspecified from then on, and waiting for a stream returns the
// error on every rank.
#pragma once

#include <cstdint>
#include <span>

#include "tensor/tensor.h"

namespace tokamak {

// Half-open.
struct IndexRange {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const { return end - begin; }
  friend bool operator==(const IndexRange&, const IndexRange&) = default;
};

// The place of one rank in its group.
struct RankInfo {
  int32_t size = 1;
  int32_t rank = 0;
};

// x = x of rank 0 + x of rank 1 + ..., each element added in this order, so that its bits depend on
// nothing but these values. The same bits on every rank.
struct AllReduce {
  Tensor x;  // f32 [T, cols], in/out; contiguous
};

// out[t, columns[r]] = x[t] of rank r. Where ranges overlap, the ranks' values must be equal.
struct AllGather {
  Tensor x;    // f32 [T, columns[rank].size()]; may be columns of a wider tensor
  Tensor out;  // f32 [T, cols]
  std::span<const IndexRange> columns;  // one per rank, the same on each
};

}  // namespace tokamak
