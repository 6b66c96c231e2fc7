#include "ops/testing/op_harness.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cctype>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "ops/cpu/cache_layout.h"
#include "ops/cpu/cpu_ops.h"
#include "ops/cuda/cuda_ops.h"
#include "quant/quantize.h"

namespace tokamak {

namespace {

OpBackend CudaBackend(std::string name, const CudaOptions& options) {
  const DType type = CudaWeightType(options.precise);
  OpBackend cuda = {.name = std::move(name),
                    .make =
                        [options](int threads) {
                          CudaOptions with_threads = options;
                          with_threads.threads = threads;
                          return MakeCudaOps(with_threads);
                        },
                    .weights = type,
                    .activations = {type},
                    .inner = type};
  const Status status = cuda.make(1).status();
  // ctest takes "no CUDA backend here" to mean that there is no GPU.
  if (status.code() == StatusCode::kInvalidArgument) {
    cuda.unavailable = "not in this build: " + status.ToString();
  } else if (!status.ok()) {
    cuda.unavailable = "no CUDA backend here: " + status.ToString();
  }
  return cuda;
}

}  // namespace

std::vector<OpBackend> CpuOpBackends() {
  std::vector<OpBackend> backends;
  for (const std::string& isa : CpuIsaNames()) {
    const auto make = [isa](int threads) { return MakeCpuOps({.threads = threads, .isa = isa}); };
    if (!make(1).ok()) continue;
    if (isa != "baseline") {
      OpBackend backend = {.name = "cpu_" + isa, .make = make, .activations = {DType::kI8Blocks}};
      if (isa == "avx512bf16" || isa == "amx") backend.activations.push_back(DType::kBF16);
      backends.push_back(backend);
    }
    // These differ from the previous ISA only in their int8 and bf16 kernels.
    if (isa.ends_with("vnni") || isa == "avx512bf16" || isa == "amx" || isa.starts_with("neon")) {
      continue;
    }
    backends.push_back({.name = "cpu_" + isa + "_precise", .make = [isa](int threads) {
                          return MakeCpuOps({.threads = threads, .isa = isa + "/precise"});
                        }});
  }
  return backends;
}

std::vector<OpBackend> OpBackends() {
  std::vector<OpBackend> backends = CpuOpBackends();
  // New kernels must pass before they can be verified. They and the plain ones are all kernels.
  backends.push_back(CudaBackend("cuda_precise", {.precise = true}));
  backends.push_back(CudaBackend("cuda", {.kernels = KernelChoice::kNew}));
  return backends;
}

std::vector<OpBackend> PlainCudaBackend() {
  return {CudaBackend("cuda_plain", {.kernels = KernelChoice::kPlain})};
}

std::vector<OpBackend> TritonCudaBackend() {
  return {CudaBackend("cuda_triton", {.kernels = KernelChoice::kTriton})};
}

std::vector<OpBackend> FlashInferCudaBackend() {
  return {CudaBackend("cuda_flashinfer", {.flashinfer = true})};
}

std::string OpBackendName(const ::testing::TestParamInfo<OpBackend>& info) {
  return info.param.name;
}

void OpTest::SetUp() {
  if (!GetParam().unavailable.empty()) GTEST_SKIP() << GetParam().unavailable;
}

bool OpTest::Lacks(const Ops& ops, Capabilities needed) {
  const Capabilities missing = needed - ops.capabilities();
  if (missing.empty()) return false;
  [&] { GTEST_SKIP() << ops.name() << " lacks " << Describe(missing); }();
  return true;
}

std::unique_ptr<Ops> OpTest::Make(int threads) const {
  Result<std::unique_ptr<Ops>> ops = GetParam().make(threads);
  CHECK_MSG(ops.ok(), ops.status().ToString());
  return *std::move(ops);
}

std::vector<DType> WeightTypes() {
  return {DType::kF32,  DType::kF16,    DType::kBF16,   DType::kQ4_0, DType::kQ4_1, DType::kQ5_0,
          DType::kQ5_1, DType::kQ8_0,   DType::kQ2_K,   DType::kQ3_K, DType::kQ4_K, DType::kQ5_K,
          DType::kQ6_K, DType::kIQ4_NL, DType::kIQ4_XS, DType::kMXFP4};
}

std::vector<DType> CacheTypes(const OpBackend& backend) {
  std::vector<DType> types = {DType::kF32, DType::kF16, DType::kBF16, DType::kF8E4M3};
  if (!backend.name.starts_with("cuda")) types.push_back(DType::kQ8_0);
  return types;
}

Tensor OpRunner::Upload(const void* data, DType dtype, Shape shape) {
  const size_t bytes = RowBytes(dtype, shape.cols()) * static_cast<size_t>(shape.rows());
  Result<Buffer> buffer = ops_.Allocate(bytes, MemoryKind::kDevice);
  CHECK_MSG(buffer.ok(), buffer.status().ToString());
  if (bytes > 0) ops_.CopyToDevice(buffer->data(), data, bytes, *stream_);
  buffers_.push_back(*buffer);
  return Tensor(buffer->data(), dtype, shape);
}

Tensor OpRunner::Rounded(const std::vector<float>& values, DType dtype, Shape shape) {
  const size_t row_bytes = RowBytes(dtype, shape.cols());
  std::vector<std::byte> bytes(row_bytes * static_cast<size_t>(shape.rows()));
  for (int64_t i = 0; i < shape.rows(); ++i) {
    QuantizeRow(dtype, values.data() + i * shape.cols(), shape.cols(),
                bytes.data() + static_cast<size_t>(i) * row_bytes);
  }
  return Upload(bytes.data(), dtype, shape);
}

Tensor OpRunner::Output(Shape shape, DType dtype) {
  const std::vector<float> poison(static_cast<size_t>(shape.elements()),
                                  std::numeric_limits<float>::quiet_NaN());
  return Rounded(poison, dtype, shape);
}

std::vector<float> OpRunner::Download(const Tensor& tensor) {
  const size_t row_bytes = RowBytes(tensor.dtype, tensor.cols());
  std::vector<std::byte> bytes(row_bytes * static_cast<size_t>(tensor.rows()));
  for (int64_t row = 0; row < tensor.rows() && tensor.cols() > 0; ++row) {
    ops_.CopyToHost(bytes.data() + static_cast<size_t>(row) * row_bytes, tensor.RowData(row),
                    row_bytes, *stream_);
  }
  const Status status = ops_.Synchronize(*stream_);
  CHECK_MSG(status.ok(), status.ToString());
  std::vector<float> values(static_cast<size_t>(tensor.shape.elements()));
  for (int64_t row = 0; row < tensor.rows(); ++row) {
    DequantizeRow(tensor.dtype, bytes.data() + static_cast<size_t>(row) * row_bytes, tensor.cols(),
                  values.data() + row * tensor.cols());
  }
  return values;
}

std::vector<std::byte> OpRunner::DownloadBytes(const void* device, size_t bytes) {
  std::vector<std::byte> values(bytes);
  if (bytes > 0) ops_.CopyToHost(values.data(), device, bytes, *stream_);
  const Status status = ops_.Synchronize(*stream_);
  CHECK_MSG(status.ok(), status.ToString());
  return values;
}

void KeysToRows(const Ops& ops, const KvLayerView& cache, std::byte* keys) {
  if (!ops.name().starts_with("cpu/")) return;
  const size_t row_bytes = RowBytes(cache.dtype, cache.head_dim);
  const std::vector<std::byte> stored(keys,
                                      keys + row_bytes * static_cast<size_t>(cache.block_size));
  for (int i = 0; i < cache.block_size; ++i) {
    cpu::LoadKey(cache.dtype, cache.block_size, cache.head_dim, i, stored.data(),
                 keys + row_bytes * static_cast<size_t>(i));
  }
}

double StepAt(DType dtype, double value) {
  const double size = std::abs(value);
  switch (dtype) {
    case DType::kF32:
      return kUnit * size;
    case DType::kF16:
      return 0x1p-10 * size;
    case DType::kBF16:
      return 0x1p-7 * size;
    case DType::kF8E4M3:
      return std::max(0x1p-3 * size, 0x1p-9);
    default:
      CHECK_MSG(false, "not a plain type of a cache");
  }
}

std::vector<float> RoundTo(DType dtype, const std::vector<float>& values) {
  const auto n = static_cast<int64_t>(values.size());
  std::vector<std::byte> bytes(RowBytes(dtype, n));
  std::vector<float> rounded(values.size());
  QuantizeRow(dtype, values.data(), n, bytes.data());
  DequantizeRow(dtype, bytes.data(), n, rounded.data());
  return rounded;
}

std::vector<float> RandomFloats(std::mt19937_64& random, int64_t n, float scale) {
  std::normal_distribution<float> normal(0.0f, scale);
  std::vector<float> values(static_cast<size_t>(n));
  for (float& value : values) value = normal(random);
  return values;
}

double Norm(const float* values, int64_t n) {
  double squares = 0;
  for (int64_t i = 0; i < n; ++i) squares += static_cast<double>(values[i]) * values[i];
  return std::sqrt(squares);
}

WorstError::~WorstError() {
  fmt::print("[ error    ] {}: at most {:.3g}, {:.1f}% of the tolerance\n", what_, worst_absolute_,
             100 * worst_);
}

void WorstError::Compare(float actual, float expected, double tolerance,
                         FunctionRef<std::string()> where) {
  if (std::bit_cast<uint32_t>(actual) == std::bit_cast<uint32_t>(expected)) return;
  const double error = std::abs(static_cast<double>(actual) - expected);
  if (!(error <= tolerance)) {  // true for NaN too
    if (++failures_ <= 3) {
      ADD_FAILURE() << what_ << ", " << where() << ": " << actual << ", expected " << expected
                    << " within " << tolerance;
    }
    return;
  }
  worst_ = std::max(worst_, tolerance > 0 ? error / tolerance : 0.0);
  worst_absolute_ = std::max(worst_absolute_, error);
}

void WorstError::Compare(const std::vector<float>& actual, const std::vector<float>& expected,
                         double tolerance, const std::string& where) {
  ASSERT_EQ(actual.size(), expected.size()) << what_ << ", " << where;
  for (size_t i = 0; i < actual.size(); ++i) {
    Compare(actual[i], expected[i], tolerance, [&] { return fmt::format("{} [{}]", where, i); });
  }
}

::testing::AssertionResult SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) {
    return ::testing::AssertionFailure() << a.size() << " elements and " << b.size();
  }
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::memcmp(&a[i], &b[i], sizeof(float)) != 0) {
      return ::testing::AssertionFailure() << fmt::format(
                 "element {} of {}: {} ({:a}) and {} ({:a})", i, a.size(), a[i], a[i], b[i], b[i]);
    }
  }
  return ::testing::AssertionSuccess();
}

}  // namespace tokamak
