// Shared by the op tests: the backends, tensors in the memory where a backend computes, and
// comparisons with error bounds.
//
// A test body runs an op on the reference and on the backend under test, from the same host values,
// and compares the results.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <memory>
#include <ostream>
#include <random>
#include <string>
#include <vector>

#include "base/function_ref.h"
#include "ops/ops.h"

namespace tokamak {

struct OpBackend {
  std::string name;
  std::function<Result<std::unique_ptr<Ops>>(int threads)> make;
  // The type of its weights; f32 for CPUs, which keep each weight's own type.
  DType weights = DType::kF32;
  // The input types that its Linear may want.
  std::vector<DType> activations = {DType::kF32};
  // The type of the outputs that its Linear writes for other operations.
  DType inner = DType::kF32;
  // Why it cannot run here, or empty. Its tests are skipped with this reason.
  std::string unavailable = {};

  friend void PrintTo(const OpBackend& backend, std::ostream* out) { *out << backend.name; }
};
// Returns every backend and ISA that this machine can run, and CUDA's even if there is no GPU.
std::vector<OpBackend> OpBackends();
// Returns the CPUs among OpBackends, for what only they promise.
std::vector<OpBackend> CpuOpBackends();
// CUDA with the plain kernels (ops/cuda/kernel_table.h), for the operations that have others too.
std::vector<OpBackend> PlainCudaBackend();
// CUDA with the kernels that Triton compiled, if this build has them.
std::vector<OpBackend> TritonCudaBackend();
// CUDA with FlashInfer's attention, if this build has it.
std::vector<OpBackend> FlashInferCudaBackend();
// For INSTANTIATE_TEST_SUITE_P.
std::string OpBackendName(const ::testing::TestParamInfo<OpBackend>& info);
// A test with a backend as parameter; skipped if that cannot run. A SetUp that overrides this one
// calls it first and returns if IsSkipped().
class OpTest : public ::testing::TestWithParam<OpBackend> {
 protected:
  void SetUp() override;
  std::unique_ptr<Ops> Make(int threads) const;
  // If the backend lacks what a test needs, skips the test; it returns then.
  static bool Lacks(const Ops& ops, Capabilities needed);
};

// All types of weights.
std::vector<DType> WeightTypes();

// The types in which a backend can keep a KV cache.
std::vector<DType> CacheTypes(const OpBackend& backend);

// The relative rounding error of f32.
inline constexpr double kUnit = 0x1p-24;

// Uploads host values and keeps them until it is destroyed.
class OpRunner {
 public:
  explicit OpRunner(Ops& ops) : ops_(ops), stream_(ops.MakeStream()) {}

  Ops& ops() { return ops_; }
  Stream& stream() { return *stream_; }

  Tensor Upload(const void* data, DType dtype, Shape shape);
  Tensor Floats(const std::vector<float>& values, Shape shape) {
    return Upload(values.data(), DType::kF32, shape);
  }
  // `values` rounded to `dtype`.
  Tensor Rounded(const std::vector<float>& values, DType dtype, Shape shape);
  Tensor Ints(const std::vector<int32_t>& values) {
    return Upload(values.data(), DType::kI32, {static_cast<int64_t>(values.size())});
  }
  Tensor Longs(const std::vector<int64_t>& values) {
    return Upload(values.data(), DType::kI64, {static_cast<int64_t>(values.size())});
  }
  // Filled with NaN, to find elements that an op fails to write.
  Tensor Output(Shape shape, DType dtype = DType::kF32);

  template <typename Op>
  void Run(const Op& op) {
    ops_.Run(op, *stream_);
  }
  // All rows of a tensor as f32, without the gaps between them.
  std::vector<float> Download(const Tensor& tensor);
  std::vector<std::byte> DownloadBytes(const void* device, size_t bytes);

 private:
  Ops& ops_;
  std::unique_ptr<Stream> stream_;
  std::vector<Buffer> buffers_;
};

// Reorders the keys of one KV head in a block from the order of `ops` to rows
// [block_size][head_dim].
void KeysToRows(const Ops& ops, const KvLayerView& cache, std::byte* keys);

// The distance to the next value of a plain type, at most.
double StepAt(DType dtype, double value);

// The values after rounding to `dtype` and back.
std::vector<float> RoundTo(DType dtype, const std::vector<float>& values);

std::vector<float> RandomFloats(std::mt19937_64& random, int64_t n, float scale = 1.0f);
double Norm(const float* values, int64_t n);

// The worst error of a test as a share of its tolerance. Printed on destruction.
class WorstError {
 public:
  explicit WorstError(std::string what) : what_(std::move(what)) {}
  ~WorstError();

  // Fails the test if `actual` is off by more than `tolerance`, or not finite where the reference
  // is. Calls `where` only then.
  void Compare(float actual, float expected, double tolerance, FunctionRef<std::string()> where);
  // The same tolerance for all elements.
  void Compare(const std::vector<float>& actual, const std::vector<float>& expected,
               double tolerance, const std::string& where);

 private:
  std::string what_;
  double worst_ = 0;  // as a share of the tolerance
  double worst_absolute_ = 0;
  int failures_ = 0;
};

// Compares bits, NaN included.
::testing::AssertionResult SameBits(const std::vector<float>& a, const std::vector<float>& b);

}  // namespace tokamak
