// Kernels that Triton compiled, beside our own: the same bits. Needs a GPU, and a build with
// TOKAMAK_TRITON; what cannot be loaded is tested everywhere.
#include "ops/cuda/triton/loader.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "ops/cuda/testing/device_array.h"
#include "quant/half.h"

namespace tokamak::cuda {
namespace {

int Capability() {
  int major = 0, minor = 0;
  EXPECT_EQ(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0), cudaSuccess);
  EXPECT_EQ(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, 0), cudaSuccess);
  return 10 * major + minor;
}

::testing::AssertionResult Says(const Status& status, const char* words) {
  if (status.message().find(words) != std::string::npos) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << status.ToString();
}

Result<std::unique_ptr<TritonNorm>> Load(std::span<const TritonKernel> kernels, int capability) {
  return TritonNorm::Load(kernels, capability, std::make_shared<const bool>(false));
}

TEST(TritonNorm, AGpuThatNoKernelIsForIsNamed) {
  const Status status = Load(TritonKernels(), 12).status();
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_TRUE(Says(status, "no kernels from Triton for compute capability 1.2"));
}

TEST(TritonNorm, WhatIsNoMachineCodeIsRefused) {
  const std::string code(1000, 'x');
  const TritonKernel kernel = {.name = "add_rms_norm",
                               .capability = Capability(),
                               .cols = 512,
                               .x_bf16 = true,
                               .out_bf16 = true,
                               .adds = true,
                               .threads = 128,
                               .shared_bytes = 16,
                               .code = code};
  const Status status = Load({&kernel, 1}, Capability()).status();
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_TRUE(Says(status, "add_rms_norm for rows of up to 512 columns"));
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

struct Case {
  int64_t rows, cols;
  bool x_bf16, out_bf16, adds;
};

// The output and the residual after a launch, as bits.
struct Output {
  std::vector<uint16_t> out, residual;

  friend bool operator==(const Output&, const Output&) = default;
};

// The bits of random values.
std::vector<uint16_t> Random(std::mt19937& random, int64_t count, bool bf16) {
  std::normal_distribution<float> normal(0.0f, 3.0f);
  std::vector<uint16_t> values;
  for (int64_t i = 0; i < count; ++i) {
    const float value = normal(random);
    uint16_t halves[2];
    std::memcpy(halves, &value, sizeof(value));
    if (bf16) {
      values.push_back(FloatToBFloat16(value));
    } else {
      values.insert(values.end(), halves, halves + 2);
    }
  }
  return values;
}

// Rows have a gap of four columns between them. Null: our own kernel.
Output Normalize(const Case& c, const TritonNorm* triton) {
  std::mt19937 random(static_cast<unsigned>(c.rows + 100 * c.cols));
  const int64_t stride = c.cols + 4;
  const auto size = static_cast<size_t>(c.rows * stride);
  const DeviceArray<uint16_t> x(Random(random, c.rows * stride, c.x_bf16));
  const DeviceArray<uint16_t> weight(Random(random, c.cols, /*bf16=*/false));
  const DeviceArray<uint16_t> residual(Random(random, c.rows * stride, /*bf16=*/false));
  const DeviceArray<uint16_t> out(std::vector<uint16_t>(size * (c.out_bf16 ? 1 : 2), 0xffff));
  const NormArgs args = {.x = x.data(),
                         .residual = c.adds ? reinterpret_cast<float*>(residual.data()) : nullptr,
                         .weight = reinterpret_cast<const float*>(weight.data()),
                         .out = out.data(),
                         .x_bf16 = c.x_bf16,
                         .out_bf16 = c.out_bf16,
                         .num_tokens = c.rows,
                         .cols = c.cols,
                         .x_stride = stride,
                         .residual_stride = stride,
                         .out_stride = stride,
                         .eps = 1e-5f};
  const CudaTestStream stream;
  if (triton != nullptr) {
    EXPECT_TRUE(triton->Takes(args));
    EXPECT_EQ(triton->Launch(args, stream.get()), cudaSuccess);
  } else {
    EXPECT_EQ(LaunchAddRmsNorm(args, stream.get()), cudaSuccess);
  }
  return {.out = out.Download(stream), .residual = residual.Download(stream)};
}

TEST(TritonNorm, KernelsOfThisBuildHaveTheBitsOfOurs) {
  if (TritonKernels().empty()) GTEST_SKIP() << "this build has no kernels from Triton";
  const auto triton = Load(TritonKernels(), Capability());
  ASSERT_TRUE(triton.ok()) << triton.status().ToString();
  for (const int64_t cols : {4, 128, 512, 576, 1024, 1536, 2048, 2880, 4092, 4096}) {
    for (const int64_t rows : {0, 1, 3, 70}) {
      for (int types = 0; types < 8; ++types) {
        const Case c = {rows, cols, (types & 1) != 0, (types & 2) != 0, (types & 4) != 0};
        EXPECT_TRUE(Normalize(c, triton->get()) == Normalize(c, nullptr))
            << rows << " x " << cols << ", types " << types;
      }
    }
  }
}

}  // namespace
}  // namespace tokamak::cuda
