#include "bench/gpu_probe/gemm_host.h"

#include <algorithm>

#include "bench/gpu_probe/cublas_product.h"
#include "bench/gpu_probe/tensor_map.h"

namespace probe {
namespace {

int CopiesOf(size_t bytes) {
  constexpr size_t kBeyondL2 = size_t{400} << 20;
  return static_cast<int>(std::max<size_t>(2, (kBeyondL2 + bytes - 1) / bytes));
}

}  // namespace

GemmBuffers::GemmBuffers(const GemmCase& largest, cudaStream_t stream)
    : copies(CopiesOf(static_cast<size_t>(largest.n) * largest.k * 2)),
      weight_bytes(static_cast<size_t>(largest.n) * largest.k * 2),
      weights(weight_bytes * copies),
      x(static_cast<size_t>(largest.m) * largest.k * 2),
      y(static_cast<size_t>(largest.m) * largest.n * 2),
      expected(y.bytes()),
      workspace(size_t{64} << 20) {
  FillRandomBf16(weights.As(), weights.bytes() / 2, kWeightScale, 1, stream);
  FillRandomBf16(x.As(), x.bytes() / 2, kTokenScale, 2, stream);
  PROBE_CHECK(cudaStreamSynchronize(stream));
}

CUtensorMap TileMap(void* data, int rows, int columns, int box_rows) {
  return MakeTensorMap(data, {static_cast<cuuint64_t>(columns), static_cast<cuuint64_t>(rows)},
                       {static_cast<cuuint64_t>(columns) * 2},
                       {64, static_cast<cuuint32_t>(box_rows)}, CU_TENSOR_MAP_L2_PROMOTION_L2_256B);
}

double TimeGraph(cudaStream_t stream, int copies, const GemmCase& shape,
                 const std::function<void(int copy)>& launch) {
  // About 2 ms of work, so that the launch of the graph itself does not count.
  const double flops = 2.0 * shape.n * shape.m * shape.k;
  const double us = std::max(2.0 * shape.n * shape.k / 4e6, flops / 600e6);
  const int launches = std::max(copies, std::min(200, static_cast<int>(2000 / us)));
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  PROBE_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  for (int i = 0; i < launches; ++i) launch(i % copies);
  PROBE_CHECK(cudaStreamEndCapture(stream, &graph));
  PROBE_CHECK(cudaGraphInstantiate(&executable, graph, 0));
  const Timing timing = Time(
      stream, [&] { PROBE_CHECK(cudaGraphLaunch(executable, stream)); }, 5);
  PROBE_CHECK(cudaGraphExecDestroy(executable));
  PROBE_CHECK(cudaGraphDestroy(graph));
  return timing.median_us / launches;
}

double TimeCublas(const GemmCase& shape, const GemmBuffers& buffers, bool split,
                  cudaStream_t stream) {
  const CublasProduct product(CUDA_R_16BF, CUDA_R_16BF, shape.m, shape.n, shape.k);
  double best = 1e30;
  for (const auto& found : product.Algorithms(buffers.workspace.bytes(), split, 6)) {
    const auto run = [&](int copy, const DeviceMemory& y) {
      return product.Run(found.algo, buffers.Weights(copy), buffers.x.As(), y.As(),
                         buffers.workspace.As(), buffers.workspace.bytes(), stream);
    };
    if (run(0, buffers.expected) != CUBLAS_STATUS_SUCCESS) continue;
    best = std::min(best, TimeGraph(stream, buffers.copies, shape,
                                    [&](int copy) { PROBE_CHECK(run(copy, buffers.y)); }));
  }
  return best;
}

}  // namespace probe
