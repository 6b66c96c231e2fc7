// Weights on the device: bf16 [rows, cols], dense, whatever they were stored as.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "base/thread_pool.h"
#include "ops/cuda/calls.h"
#include "ops/cuda/cuda_ops.h"
#include "ops/cuda/memory.h"
#include "ops/ops.h"

namespace tokamak::cuda {

struct LinearRecipe;

// One copy serves products and look-ups, so kTied needs nothing special.
class CudaWeight final : public PackedWeight {
 public:
  CudaWeight(int64_t rows, int64_t cols, Buffer data)
      : PackedWeight(rows, cols, kCudaActivation, static_cast<int64_t>(data.size())),
        data_(std::move(data)) {}

  const uint16_t* data() const { return reinterpret_cast<const uint16_t*>(data_.data()); }
  // How to multiply with it; null for a weight that is only looked up.
  std::shared_ptr<const LinearRecipe> recipe;

 private:
  Buffer data_;
};

// Brings weights to the device: reads and converts on the host with all threads into one pinned
// buffer while the other is being copied. Rounds to nearest even. Random weights are made there.
class WeightLoader {
 public:
  WeightLoader(CallGuard& guard, int threads) : guard_(guard), pool_(threads) {}
  ~WeightLoader();

  Result<std::unique_ptr<CudaWeight>> Load(const WeightSpec& spec);

 private:
  static constexpr size_t kStagingBytes = 32 << 20;
  struct Half {
    Buffer staging;
    cudaEvent_t copied = nullptr;
  };

  Status Start();
  Status LoadPart(const WeightSource& source, uint16_t* destination);
  // Rows [begin, end) as bf16.
  Status ConvertRows(const WeightSource& source, int64_t begin, int64_t end, uint16_t* to);

  CallGuard& guard_;
  ThreadPool pool_;
  cudaStream_t stream_ = nullptr;
  std::array<Half, 2> halves_;
  size_t next_ = 0;
};

}  // namespace tokamak::cuda
