// What the op tests stand on: the list of backends, tensors that live where a backend computes, and
// a comparison that knows how large an error may be.
//
// A test body runs an op once on the reference and once on the backend under test, from the same
// host values, and compares what comes back.
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
  // What it keeps weights in; on CPUs f32 stands for their own types.
  DType weights = DType::kF32;
  // What it may want as the input of a Linear.
  std::vector<DType> activations = {DType::kF32};
  // Why it cannot run here: its tests are skipped, and say so.
  std::string unavailable = {};

  friend void PrintTo(const OpBackend& backend, std::ostream* out) { *out << backend.name; }
};
// Every backend and ISA that can run on this machine, and those that need a device that it lacks.
std::vector<OpBackend> OpBackends();
// For INSTANTIATE_TEST_SUITE_P.
std::string OpBackendName(const ::testing::TestParamInfo<OpBackend>& info);
// A test with a backend as parameter: skipped where that cannot run. A SetUp that asks for more
// calls this one first, and returns if IsSkipped().
class OpTest : public ::testing::TestWithParam<OpBackend> {
 protected:
  void SetUp() override;
  std::unique_ptr<Ops> Make(int threads) const;
};

// 16 types that weights come in.
std::vector<DType> WeightTypes();

// Types that a backend keeps a KV cache in.
std::vector<DType> CacheTypes(const OpBackend& backend);

// One unit of relative rounding of f32.
inline constexpr double kUnit = 0x1p-24;

// Uploads host values and keeps them until it goes.
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
  // Filled with NaN, so that an element that an op fails to write cannot pass.
  Tensor Output(Shape shape, DType dtype = DType::kF32);

  template <typename Op>
  void Run(const Op& op) {
    ops_.Run(op, *stream_);
  }
  // All rows of a tensor as f32, without what lies between them.
  std::vector<float> Download(const Tensor& tensor);
  std::vector<std::byte> DownloadBytes(const void* device, size_t bytes);

 private:
  Ops& ops_;
  std::unique_ptr<Stream> stream_;
  std::vector<Buffer> buffers_;
};

// Puts the keys of one KV head in a block, as `ops` orders them, in rows: [block_size][head_dim].
void KeysToRows(const Ops& ops, const KvLayerView& cache, std::byte* keys);

// The values after rounding to `dtype` and back.
std::vector<float> RoundTo(DType dtype, const std::vector<float>& values);

std::vector<float> RandomFloats(std::mt19937_64& random, int64_t n, float scale = 1.0f);
double Norm(const float* values, int64_t n);

// The worst error of a test, as a share of what was allowed; printed at the end of it.
class WorstError {
 public:
  explicit WorstError(std::string what) : what_(std::move(what)) {}
  ~WorstError();

  // Fails the test when `actual` is off by more than `tolerance` or not finite where the reference
  // is. `where` is asked for only then.
  void Compare(float actual, float expected, double tolerance, FunctionRef<std::string()> where);
  // One tolerance for all.
  void Compare(const std::vector<float>& actual, const std::vector<float>& expected,
               double tolerance, const std::string& where);

 private:
  std::string what_;
  double worst_ = 0;  // of the tolerance
  double worst_absolute_ = 0;
  int failures_ = 0;
};

// Equality of bits, NaN included.
::testing::AssertionResult SameBits(const std::vector<float>& a, const std::vector<float>& b);

}  // namespace tokamak
