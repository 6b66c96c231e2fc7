// Operations in which the ranks of a group exchange values. Each has its own Ops. A group has one
// stage or several, one after another, which have the layers in turn (pipeline parallelism,
// arXiv:1811.06965). The ranks of a stage compute its layers together, each with a shard of the
// weights (tensor parallelism, arXiv:1909.08053). All stages have equally many ranks.
//
// All ranks of a stage run the same collectives in the same order, with tensors of the same shapes.
// What a rank sends to another, that one receives in the same order. If one rank fails, the results
// of all are unspecified from then on, and waiting for a stream returns the error on every rank.
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
  int32_t size = 1;  // ranks of its stage
  int32_t rank = 0;  // among these
  int32_t stages = 1;
  int32_t stage = 0;
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

// Hands x to the rank of the same number in another stage. To the next stage, it goes in the
// stream. The last stage may also send to earlier ones: then x is the host's, in pinned memory, and
// is sent during the call. May wait for the receiver.
struct Send {
  Tensor x;  // f32 or i32; contiguous
  int32_t stage = 0;
};

// out = what that rank of another stage has sent. The same type and number of elements.
struct Receive {
  Tensor out;
  int32_t stage = 0;
};

}  // namespace tokamak
