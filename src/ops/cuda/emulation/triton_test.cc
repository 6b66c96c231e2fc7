// How kernels from Triton are loaded, chosen and launched, with kernels in C++ in their place.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <tuple>
#include <utility>
#include <vector>

#include "ops/cuda/launch.h"
#include "ops/cuda/ptx.h"
#include "ops/cuda/testing/device_array.h"
#include "ops/cuda/triton/loader.h"
#include "quant/half.h"

namespace tokamak::cuda {
namespace {

using ::testing::HasSubstr;

// Takes what compile.py checks that Triton's kernels take. Each thread writes four columns. kAdds:
// x is bf16, else f32; the output is f32.
template <bool kAdds>
__global__ void Norm(const void* x, float* residual, const float* weight, void* out,
                     int64_t x_stride, int64_t residual_stride, int64_t out_stride, int32_t cols,
                     float eps, void* global_scratch, void* profile_scratch) {
  ptx::LaunchDependents();
  ptx::WaitForKernelAhead();
  EXPECT_TRUE(global_scratch == nullptr && profile_scratch == nullptr);
  const int64_t row = blockIdx.x;
  const auto value = [&](int64_t i) {
    if (!kAdds) return static_cast<const float*>(x)[row * x_stride + i];
    return BFloat16ToFloat(static_cast<const uint16_t*>(x)[row * x_stride + i]) +
           residual[row * residual_stride + i];
  };
  double squares = 0;
  for (int64_t i = 0; i < cols; ++i) squares += double{value(i)} * value(i);
  const double rms = std::sqrt(squares / cols + eps);
  float values[4] = {};
  const int64_t first = threadIdx.x * 4;
  for (int64_t i = first; i < first + 4 && i < cols; ++i) values[i - first] = value(i);
  __syncthreads();
  for (int64_t i = first; i < first + 4 && i < cols; ++i) {
    if (kAdds) residual[row * residual_stride + i] = values[i - first];
    static_cast<float*>(out)[row * out_stride + i] =
        static_cast<float>(values[i - first] / rms * weight[i]);
  }
}

template <typename... Params, size_t... kAt>
std::function<void()> Bind(void (*kernel)(Params...), void** arguments,
                           std::index_sequence<kAt...>) {
  const std::tuple<Params...> copies(*static_cast<Params*>(arguments[kAt])...);
  return [kernel, copies] { std::apply(kernel, copies); };
}
template <bool kAdds>
std::function<void()> BindNorm(void** arguments) {
  return Bind(&Norm<kAdds>, arguments, std::make_index_sequence<11>());
}

class TritonLoader : public ::testing::Test {
 protected:
  static constexpr int kCapability = 90;

  static TritonKernel Kernel(const EmulatedCubin& cubin, int cols, bool adds) {
    return {.name = "add_rms_norm",
            .capability = kCapability,
            .cols = cols,
            .x_bf16 = adds,
            .out_bf16 = false,
            .adds = adds,
            .threads = cols / 4,
            .shared_bytes = 32,
            .code = {reinterpret_cast<const char*>(&cubin), sizeof(cubin)}};
  }
  Result<std::unique_ptr<TritonNorm>> Load() const {
    return TritonNorm::Load(kernels_, kCapability, std::make_shared<const bool>(false));
  }

  const EmulatedCubin adds_ = {.kernel = "add_rms_norm", .bind = &BindNorm<true>};
  const EmulatedCubin norms_ = {.kernel = "add_rms_norm", .bind = &BindNorm<false>};
  std::vector<TritonKernel> kernels_ = {Kernel(norms_, 64, false), Kernel(adds_, 64, true),
                                        Kernel(adds_, 128, true)};
};

// A row that a kernel for shorter rows cannot hold goes to the next one.
TEST_F(TritonLoader, ArgumentsArriveInTheirOrder) {
  const auto triton = Load();
  ASSERT_TRUE(triton.ok()) << triton.status().ToString();
  const CudaTestStream stream;
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  for (const auto& [cols, adds] :
       {std::pair(60, false), std::pair(64, true), std::pair(128, true)}) {
    constexpr int64_t kRows = 5;
    // Every stride is another one.
    const int64_t x_stride = cols + 4, residual_stride = cols + 8, out_stride = cols + 12;
    std::vector<float> x, residual, weight;
    for (int64_t i = 0; i < kRows * x_stride; ++i) x.push_back(normal(random));
    for (int64_t i = 0; i < kRows * residual_stride; ++i) residual.push_back(normal(random));
    for (int64_t i = 0; i < cols; ++i) weight.push_back(normal(random));
    std::vector<uint16_t> x_bf16;
    for (const float value : x) x_bf16.push_back(FloatToBFloat16(value));
    const DeviceArray<float> device_x(x), device_weight(weight);
    const DeviceArray<uint16_t> device_x_bf16(x_bf16);
    std::vector<float> outs[2], residuals[2];
    for (const bool ours : {false, true}) {
      const DeviceArray<float> device_residual(residual);
      const DeviceArray<float> out(std::vector<float>(static_cast<size_t>(kRows * out_stride), 7));
      // The only input is the residual, so that it must become x.
      NormArgs args = {.x = adds ? device_x_bf16.data() : nullptr,
                       .residual = device_residual.data(),
                       .weight = device_weight.data(),
                       .out = out.data(),
                       .x_bf16 = adds,
                       .out_bf16 = false,
                       .num_tokens = kRows,
                       .cols = cols,
                       .x_stride = adds ? x_stride : 0,
                       .residual_stride = residual_stride,
                       .out_stride = out_stride,
                       .eps = 0.25f};
      ASSERT_TRUE((*triton)->Takes(args));
      ASSERT_EQ(ours ? LaunchAddRmsNorm(args, stream.get()) : (*triton)->Launch(args, stream.get()),
                cudaSuccess);
      outs[ours] = out.Download(stream);
      residuals[ours] = device_residual.Download(stream);
    }
    EXPECT_EQ(residuals[0], residuals[1]);
    for (size_t i = 0; i < outs[0].size(); ++i) {
      ASSERT_NEAR(outs[0][i], outs[1][i], 1e-5) << cols << " columns, element " << i;
    }
  }
}

TEST_F(TritonLoader, RowsWithoutAKernelAreLeftToOurs) {
  const auto triton = Load();
  ASSERT_TRUE(triton.ok()) << triton.status().ToString();
  alignas(16) static float memory[8];
  const NormArgs fits = {.x = memory,
                         .residual = memory,
                         .weight = memory,
                         .out = memory,
                         .x_bf16 = true,
                         .out_bf16 = false,
                         .num_tokens = 1,
                         .cols = 128,
                         .x_stride = 128,
                         .residual_stride = 128,
                         .out_stride = 128,
                         .eps = 1};
  EXPECT_TRUE((*triton)->Takes(fits));
  const auto refused = [&](auto change) {
    NormArgs args = fits;
    change(args);
    return !(*triton)->Takes(args);
  };
  EXPECT_TRUE(refused([](NormArgs& a) { a.cols = 132; }));
  EXPECT_TRUE(refused([](NormArgs& a) { a.cols = 126; }));
  EXPECT_TRUE(refused([](NormArgs& a) { a.fours = 2; }));
  EXPECT_TRUE(refused([](NormArgs& a) { a.x_stride = 130; }));
  EXPECT_TRUE(refused([](NormArgs& a) { a.residual_stride = 129; }));
  EXPECT_TRUE(refused([](NormArgs& a) { a.out = memory + 1; }));
  EXPECT_TRUE(refused([](NormArgs& a) { a.weight = memory + 2; }));
  EXPECT_TRUE(refused([](NormArgs& a) { a.out_bf16 = true; }));
  EXPECT_TRUE(refused([](NormArgs& a) { a.x_bf16 = false; }));
  EXPECT_TRUE(refused([](NormArgs& a) { a.x = nullptr; }));  // the longest such row has 64 columns
}

TEST_F(TritonLoader, ATableThatIsWrongIsAnErrorThatNamesTheKernel) {
  kernels_[1].name = "softmax";
  const Status status = Load().status();
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_THAT(status.ToString(), HasSubstr("softmax for rows of up to 64 columns"));
  EXPECT_THAT(status.ToString(), HasSubstr("could not be found in its code"));
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

TEST_F(TritonLoader, KernelsForOtherGpusAreNotLoaded) {
  kernels_[1].capability = 80;
  kernels_[1].code = "no cubin";
  EXPECT_TRUE(Load().ok());
  for (TritonKernel& kernel : kernels_) kernel.capability = 80;
  EXPECT_THAT(Load().status().ToString(), HasSubstr("compute capability 9.0"));
}

}  // namespace
}  // namespace tokamak::cuda
