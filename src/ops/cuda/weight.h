// Weights on the device: bf16 or f32 [rows, cols], dense, whatever they were stored as; stacks of
// equal weights one below the other, so that one tensor map describes them all.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>

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
  CudaWeight(int64_t rows, int64_t cols, DType dtype, Buffer data, DType output = DType::kF32)
      : PackedWeight(rows, cols, dtype, static_cast<int64_t>(data.size()), output),
        data_(std::move(data)) {}

  // Elements are of the type activation().
  const std::byte* data() const { return data_.data(); }
  // Products with it are a router's (LaunchRouterLinear).
  bool is_router = false;
  // How other products with it are computed (gemm.h). Null if it is only looked up, or not in bf16.
  std::shared_ptr<const LinearRecipe> recipe;

 private:
  Buffer data_;
};

// [size · rows, cols]: member i has the rows [i · rows, (i + 1) · rows).
class CudaStack final : public PackedStack {
 public:
  CudaStack(int64_t size, int64_t rows, int64_t cols, DType dtype, Buffer data, DType output)
      : PackedStack(size, rows, cols, dtype, static_cast<int64_t>(data.size()), output),
        data_(std::move(data)) {}

  // Elements are of the type activation().
  const std::byte* data() const { return data_.data(); }
  const Buffer& buffer() const { return data_; }
  // All members as one weight (Gemm::Join). Null if nothing multiplies with that.
  std::unique_ptr<CudaWeight> joined;

 private:
  Buffer data_;
};

// Brings weights to the device: reads and converts on the host, with all threads, into one of two
// pinned buffers while the other is being copied. Rounds to nearest even. Random weights in bf16
// are made on the device.
class WeightLoader {
 public:
  WeightLoader(CallGuard& guard, int threads, bool precise)
      : guard_(guard), precise_(precise), pool_(threads) {}
  ~WeightLoader();

  Result<std::unique_ptr<CudaWeight>> Load(const WeightSpec& spec);
  // Members have equal uses. An error if their shapes differ.
  Result<std::unique_ptr<CudaStack>> LoadStack(std::span<const WeightSpec> members);

 private:
  static constexpr size_t kStagingBytes = 32 << 20;
  struct Half {
    Buffer staging;
    cudaEvent_t copied = nullptr;
  };

  Status Start();
  // Loads one after the other into new memory.
  Result<Buffer> LoadAll(std::span<const WeightSpec> specs, DType dtype);
  Status LoadPart(const WeightSource& source, DType dtype, std::byte* destination);
  // Rows [begin, end).
  Status ConvertRows(const WeightSource& source, DType dtype, int64_t begin, int64_t end,
                     std::byte* to);

  CallGuard& guard_;
  const bool precise_;
  ThreadPool pool_;
  cudaStream_t stream_ = nullptr;
  std::array<Half, 2> halves_;
  size_t next_ = 0;
};

}  // namespace tokamak::cuda
