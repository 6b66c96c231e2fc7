// GateUp on every backend: the bits of its two parts, which are compared with a formula in double.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "base/check.h"
#include "ops/testing/memory_source.h"
#include "ops/testing/op_harness.h"

namespace tokamak {
namespace {

class GateUpOps : public OpTest {};
INSTANTIATE_TEST_SUITE_P(All, GateUpOps, ::testing::ValuesIn(OpBackends()), OpBackendName);
INSTANTIATE_TEST_SUITE_P(Plain, GateUpOps, ::testing::ValuesIn(PlainCudaBackend()), OpBackendName);

struct GatedMlp {
  int64_t inner, cols;
  std::shared_ptr<const MemorySource> gate, up;
  std::vector<float> bias;  // [2 inner], or empty

  std::unique_ptr<PackedWeight> Pack(Ops& ops) const {
    const WeightUse use = bias.empty() ? WeightUse::kInnerLinear : WeightUse::kLinear;
    auto weight = ops.PackWeight({.parts = {gate, up}, .use = use});
    CHECK_MSG(weight.ok(), weight.status().ToString());
    return *std::move(weight);
  }
};

GatedMlp RandomMlp(std::mt19937_64& random, int64_t inner, int64_t cols, bool bias) {
  GatedMlp mlp = {.inner = inner,
                  .cols = cols,
                  .gate = MemorySource::Random("gate", DType::kBF16, {inner, cols}, random()),
                  .up = MemorySource::Random("up", DType::kBF16, {inner, cols}, random()),
                  .bias = {}};
  if (bias) mlp.bias = RandomFloats(random, 2 * inner);
  return mlp;
}

enum class Parts { kTogether, kApart };

// x: [num_tokens, cols]. The rows of both outputs lie in wider ones by `beside` elements.
std::vector<float> RunGateUp(Ops& ops, const PackedWeight& weight, const GatedMlp& mlp,
                             const std::vector<float>& x, Activation activation, Parts parts,
                             int64_t beside = 0) {
  OpRunner run(ops);
  const int64_t inner = mlp.inner, num_tokens = static_cast<int64_t>(x.size()) / mlp.cols;
  const Tensor whole = run.Output({num_tokens, inner + beside}, weight.output());
  const Tensor both = run.Output({num_tokens, 2 * inner + 8 * beside}, weight.output());
  const GateUp op = {
      .linear = {.x = run.Rounded(x, weight.activation(), {num_tokens, mlp.cols}),
                 .weight = &weight,
                 .bias = mlp.bias.empty() ? Tensor() : run.Floats(mlp.bias, {2 * inner}),
                 .out = both.Cols(0, 2 * inner)},
      .gate = {.gate_up = both.Cols(0, 2 * inner),
               .activation = activation,
               .out = whole.Cols(beside / 2, beside / 2 + inner),
               .limit = 7,
               .alpha = 1.702f}};
  if (parts == Parts::kTogether) {
    run.Run(op);
  } else {
    run.Run(op.linear);
    run.Run(op.gate);
  }
  for (const Tensor& edge :
       {whole.Cols(0, beside / 2), whole.Cols(beside / 2 + inner, inner + beside)}) {
    for (const float value : run.Download(edge)) EXPECT_TRUE(std::isnan(value));
  }
  return run.Download(op.gate.out);
}

double Exact(Activation activation, double gate, double up) {
  switch (activation) {
    case Activation::kSilu:
      return gate / (1 + std::exp(-gate)) * up;
    case Activation::kGeluTanh:
      return gate /
             (1 + std::exp(-2 * std::sqrt(2 / M_PI) * (gate + 0.044715 * gate * gate * gate))) * up;
    case Activation::kGelu:
      return gate * 0.5 * std::erfc(-gate * M_SQRT1_2) * up;
    case Activation::kQuickGelu:
      return gate / (1 + std::exp(-1.702 * gate)) * up;
    case Activation::kClampedSwiglu:
      gate = std::min(gate, 7.0);
      return gate / (1 + std::exp(-double{1.702f} * gate)) * (std::clamp(up, -7.0, 7.0) + 1);
  }
  return NAN;
}

constexpr Activation kActivations[] = {Activation::kSilu, Activation::kGeluTanh, Activation::kGelu,
                                       Activation::kClampedSwiglu, Activation::kQuickGelu};

// Compares with sums in double of what the backend multiplies.
TEST_P(GateUpOps, MatchesTheFormula) {
  std::mt19937_64 random(31);
  const auto ops = Make(2);
  WorstError worst(fmt::format("{} gate_up", ops->name()));
  for (const auto& sizes : {std::pair<int64_t, int64_t>{40, 136}, {37, 64}, {8, 456}}) {
    const int64_t inner = sizes.first, cols = sizes.second;
    for (const bool bias : {false, true}) {
      if (bias && inner != 37) continue;
      const GatedMlp mlp = RandomMlp(random, inner, cols, bias);
      const auto weight = mlp.Pack(*ops);
      const std::vector<float> gates = mlp.gate->Dequantized(), ups = mlp.up->Dequantized();
      // The error of a sum, and of rounding it; the activations have slopes below 2.
      const bool inner_is_bf16 = weight->output() == DType::kBF16;
      for (const int64_t num_tokens : {1, 7, 70}) {
        const std::vector<float> x = RandomFloats(random, num_tokens * cols);
        const std::vector<float> rounded = RoundTo(weight->activation(), x);
        for (const Activation activation : kActivations) {
          if (!ops->capabilities().Has(NeedsOf(activation))) continue;
          const std::vector<float> actual =
              RunGateUp(*ops, *weight, mlp, x, activation, Parts::kTogether, /*beside=*/2);
          for (int64_t i = 0; i < num_tokens * inner; ++i) {
            const int64_t t = i / inner, n = i % inner;
            const auto sum = [&](const std::vector<float>& weights, int64_t at) {
              double total = bias ? mlp.bias[static_cast<size_t>(at)] : 0;
              for (int64_t k = 0; k < cols; ++k) {
                total += double{weights[static_cast<size_t>(n * cols + k)]} *
                         rounded[static_cast<size_t>(t * cols + k)];
              }
              return total;
            };
            const double gate = sum(gates, n), up = sum(ups, inner + n);
            const double of_sum =
                kUnit * std::sqrt(static_cast<double>(cols)) *
                Norm(rounded.data() + t * cols, cols) *
                std::max(Norm(gates.data() + n * cols, cols), Norm(ups.data() + n * cols, cols));
            const double of_rounding = inner_is_bf16 ? 0x1p-8 : 0;
            const double gate_error = of_sum + of_rounding * std::abs(gate);
            const double up_error = of_sum + of_rounding * std::abs(up);
            const double expected = Exact(activation, gate, up);
            worst.Compare(actual[static_cast<size_t>(i)], static_cast<float>(expected),
                          2 * gate_error * (std::abs(up) + 1 + up_error) +
                              std::abs(gate) * up_error + of_rounding * std::abs(expected) + 1e-5,
                          [&] { return fmt::format("{}x{}, [{}, {}]", inner, cols, t, n); });
          }
        }
      }
    }
  }
}

// A backend may fuse the parts for some shapes, activations and numbers of tokens only: gates
// without bias, of a multiple of eight rows; few tokens.
TEST_P(GateUpOps, HasTheBitsOfItsParts) {
  std::mt19937_64 random(32);
  const auto ops = Make(2);
  const auto check = [&](const GatedMlp& mlp, const std::vector<int64_t>& counts) {
    const auto weight = mlp.Pack(*ops);
    for (const int64_t num_tokens : counts) {
      const std::vector<float> x = RandomFloats(random, num_tokens * mlp.cols);
      const Activation activation = kActivations[num_tokens / 3 % 4];
      if (!ops->capabilities().Has(NeedsOf(activation))) continue;
      const auto run = [&](Parts parts) {
        return RunGateUp(*ops, *weight, mlp, x, activation, parts, /*beside=*/num_tokens % 3);
      };
      EXPECT_TRUE(SameBits(run(Parts::kTogether), run(Parts::kApart)))
          << mlp.inner << "x" << mlp.cols << ", " << num_tokens << " tokens, activation "
          << static_cast<int>(activation);
    }
  };
  std::vector<int64_t> counts(66);
  std::iota(counts.begin(), counts.end(), 0);
  check(RandomMlp(random, 72, 64, false), counts);
  counts = {1, 6, 9, 14, 27, 65, 98, 130};
  check(RandomMlp(random, 40, 136, false), counts);
  for (const auto& sizes : {std::pair<int64_t, int64_t>{37, 64}, {36, 72}, {16, 31}}) {
    const int64_t inner = sizes.first, cols = sizes.second;
    check(RandomMlp(random, inner, cols, false), counts);
  }
  check(RandomMlp(random, 40, 64, true), counts);
}

TEST_P(GateUpOps, ARowsBitsDependOnNothingButTheRow) {
  std::mt19937_64 random(33);
  const auto ops = Make(2);
  for (const auto& sizes : {std::pair<int64_t, int64_t>{64, 128}, {24, 64}}) {
    const int64_t inner = sizes.first, cols = sizes.second;
    const GatedMlp mlp = RandomMlp(random, inner, cols, false);
    const auto weight = mlp.Pack(*ops);
    const std::vector<float> x = RandomFloats(random, 150 * cols);
    const auto run = [&](int64_t begin, int64_t end) {
      return RunGateUp(*ops, *weight, mlp, {x.begin() + begin * cols, x.begin() + end * cols},
                       Activation::kSilu, Parts::kTogether);
    };
    const std::vector<float> all = run(0, 150);
    for (const auto& [begin, end] :
         {std::pair<int64_t, int64_t>{0, 1}, {7, 9}, {20, 36}, {50, 81}, {30, 94}, {3, 120}}) {
      EXPECT_TRUE(
          SameBits(run(begin, end), {all.begin() + begin * inner, all.begin() + end * inner}))
          << inner << "x" << cols << ", tokens " << begin << " to " << end;
    }
  }
}

}  // namespace
}  // namespace tokamak
