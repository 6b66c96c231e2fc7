// The host side of the kernels of ranks: around their exchanges (collectives.cu), and for a shard
// of the vocabulary. As in kernels.h, all can be captured, and a launch with nothing to do is left
// out.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

#include "ops/collectives.h"
#include "ops/cuda/kernels.h"

namespace tokamak::cuda {

// See AllReduce: sum[i] = parts[0][i] + parts[1][i] + ..., in this order.
struct AddPartsArgs {
  const float* parts;  // [num_parts, count]
  float* sum;          // [count]
  int64_t count;
  int32_t num_parts;
};
cudaError_t LaunchAddParts(const AddPartsArgs& args, cudaStream_t stream);

// See AllGather. What a rank hands over are its rows, each filled up to the widest of any rank, one
// after another. Of these elements, a launch takes [begin, begin + count).
struct ColumnsArgs {
  static constexpr int32_t kMaxRanks = 64;

  const void* x;
  void* out;
  void* own;             // [count], of this rank
  const void* parts;     // [num_ranks, count]
  size_t element_bytes;  // 2 or 4
  int64_t begin = 0, count = 0, widest = 0;
  int64_t x_stride, out_stride;
  int32_t rank, num_ranks;
  IndexRange columns[kMaxRanks] = {};
};
cudaError_t LaunchPackColumns(const ColumnsArgs& args, cudaStream_t stream);    // x to own
cudaError_t LaunchUnpackColumns(const ColumnsArgs& args, cudaStream_t stream);  // parts to out

// See Embed. The table has the rows of ids from first_id on; others are zeros.
struct EmbedShardArgs {
  EmbedArgs embed;
  int64_t first_id, num_rows;
};
cudaError_t LaunchEmbedShard(const EmbedShardArgs& args, cudaStream_t stream);

}  // namespace tokamak::cuda
