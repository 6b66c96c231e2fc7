// The host's side of sections "wgmma" and "k_chunks": buffers, tensor maps, cuBLASLt, timing.
#pragma once

#include <cuda.h>

#include <functional>

#include "bench/gpu_probe/probe.h"

namespace probe {

struct GemmCase {
  int n, m, k;  // weight rows, tokens, length of the dot products
};

constexpr float kTokenScale = 1.0f, kWeightScale = 0.02f;

// Random operands; so many copies of the weights that the L2 cannot hold them all.
struct GemmBuffers {
  GemmBuffers(const GemmCase& largest, cudaStream_t stream);
  void* Weights(int copy) const { return weights.As<uint8_t>() + copy * weight_bytes; }

  int copies;
  size_t weight_bytes;
  DeviceMemory weights, x, y, expected, workspace;
};

// A map of a row-major bf16 matrix, in boxes of `box_rows` x 64 elements, 128-byte swizzle.
CUtensorMap TileMap(void* data, int rows, int columns, int box_rows);

// Microseconds of one launch, in a graph that goes through the copies of the weights in turn.
double TimeGraph(cudaStream_t stream, int copies, const GemmCase& shape,
                 const std::function<void(int copy)>& launch);

// Microseconds of cuBLASLt's best algorithm of those that it proposes, with split-K only if
// `split`. Leaves a result of the first copy of the weights in `buffers.expected`.
double TimeCublas(const GemmCase& shape, const GemmBuffers& buffers, bool split,
                  cudaStream_t stream);

}  // namespace probe
