// The router's product: for any number of tokens bit by bit the chains of router_linear.cu, written
// down as one plain loop.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "ops/cuda/kernels.h"
#include "ops/cuda/testing/device_array.h"

namespace tokamak::cuda {
namespace {

struct Problem {
  int64_t num_tokens, rows, cols;
  std::vector<float> x, weight, bias;
};

Problem MakeProblem(int64_t num_tokens, int64_t rows, int64_t cols) {
  std::mt19937 random(static_cast<unsigned>(num_tokens + 100 * rows + cols));
  std::normal_distribution<float> normal;
  const auto values = [&](int64_t count) {
    std::vector<float> values(static_cast<size_t>(count));
    for (float& value : values) value = normal(random);
    return values;
  };
  return {num_tokens, rows, cols, values(num_tokens * cols), values(rows * cols), values(rows)};
}

float Dot(const float* x, const float* weight, int64_t cols) {
  float chains[32] = {};
  for (int64_t k = 0; k < cols; ++k) {
    float& chain = chains[k / 4 % 32];
    chain = std::fma(x[k], weight[k], chain);
  }
  for (int distance = 16; distance > 0; distance /= 2) {
    for (int c = 0; c < distance; ++c) chains[c] += chains[c + distance];
  }
  return chains[0];
}

std::vector<float> Expect(const Problem& p) {
  std::vector<float> out;
  for (int64_t t = 0; t < p.num_tokens; ++t) {
    for (int64_t n = 0; n < p.rows; ++n) {
      const float sum = Dot(p.x.data() + t * p.cols, p.weight.data() + n * p.cols, p.cols);
      out.push_back(p.bias.empty() ? sum : sum + p.bias[static_cast<size_t>(n)]);
    }
  }
  return out;
}

using Launch = cudaError_t (*)(const RouterLinearArgs&, cudaStream_t);

std::vector<float> Multiply(const Problem& p, Launch launch) {
  const DeviceArray<float> x(p.x), weight(p.weight), bias(p.bias);
  const DeviceArray<float> out(static_cast<size_t>(p.num_tokens * p.rows));
  const RouterLinearArgs args = {.x = x.data(),
                                 .weight = weight.data(),
                                 .bias = p.bias.empty() ? nullptr : bias.data(),
                                 .out = out.data(),
                                 .num_tokens = p.num_tokens,
                                 .rows = p.rows,
                                 .cols = p.cols,
                                 .x_stride = p.cols,
                                 .out_stride = p.rows};
  EXPECT_TRUE(launch != &LaunchRouterTiles || HasRouterTiles(args));
  const CudaTestStream stream;
  EXPECT_EQ(launch(args, stream.get()), cudaSuccess);
  return out.Download(stream);
}

void ExpectSame(const std::vector<float>& actual, const std::vector<float>& expected,
                const Problem& p, const std::string& kernel) {
  ASSERT_EQ(actual.size(), expected.size());
  const auto at = std::mismatch(actual.begin(), actual.end(), expected.begin()).first;
  EXPECT_TRUE(at == actual.end()) << kernel << ", " << p.num_tokens << " tokens, " << p.rows
                                  << " x " << p.cols << ": output " << at - actual.begin() << " is "
                                  << *at << ", not "
                                  << expected[static_cast<size_t>(at - actual.begin())];
}

TEST(RouterLinear, TilesAndLanesGiveTheSameChains) {
  struct Shape {
    int64_t num_tokens, rows, cols;
  };
  // Ends of tiles, of steps of 64 columns and of periods of 128; cols that only lanes take.
  for (const Shape& shape : std::vector<Shape>{{1, 1, 4},
                                               {3, 33, 64},
                                               {63, 32, 68},
                                               {65, 31, 132},
                                               {130, 40, 256},
                                               {70, 128, 576},
                                               {5, 7, 61}}) {
    Problem p = MakeProblem(shape.num_tokens, shape.rows, shape.cols);
    if (shape.rows == 40) p.bias.clear();
    const std::vector<float> expected = Expect(p);
    ExpectSame(Multiply(p, &LaunchRouterLanes), expected, p, "lanes");
    if (shape.cols % 4 == 0) ExpectSame(Multiply(p, &LaunchRouterTiles), expected, p, "tiles");
  }
}

TEST(RouterLinear, ManyTokensGiveTheSameChains) {
  const Problem p = MakeProblem(1030, 5, 8);
  ExpectSame(Multiply(p, &LaunchRouterLinear), Expect(p), p, "chosen");
}

}  // namespace
}  // namespace tokamak::cuda
