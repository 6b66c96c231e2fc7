// Activate, Clamp, AddResidual and rarely used activations on every backend, against formulas in
// double.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "ops/testing/memory_source.h"
#include "ops/testing/op_harness.h"

namespace tokamak {
namespace {

class ActivationOps : public OpTest {};
INSTANTIATE_TEST_SUITE_P(All, ActivationOps, ::testing::ValuesIn(OpBackends()), OpBackendName);

// Every multiple of 2^-9 in [-14, 14] and extremes. No vector width divides the number of values.
std::vector<float> WholeRange() {
  std::vector<float> values;
  for (float x = -14; x <= 14; x += 0x1p-9f) values.push_back(x);
  for (const float x : {0.0f, 1e-40f, 1e-20f, 1e-6f, 100.0f, 1e18f, 1e30f, 3e38f}) {
    values.push_back(x);
    values.push_back(-x);
  }
  return values;
}

std::vector<float> RunActivate(Ops& ops, Activation activation, const std::vector<float>& x) {
  OpRunner run(ops);
  const auto width = static_cast<int64_t>(x.size());
  const Activate op = {
      .x = run.Floats(x, {1, width}), .activation = activation, .out = run.Output({1, width})};
  run.Run(op);
  return run.Download(op.out);
}

double Exact(Activation activation, double x) {
  if (activation == Activation::kGelu) return x * 0.5 * std::erfc(-x * M_SQRT1_2);
  const double inner = activation == Activation::kSilu ? x
                       : activation == Activation::kQuickGelu
                           ? 1.702 * x
                           : 2 * std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x);
  return x / (1 + std::exp(-inner));
}

TEST_P(ActivationOps, ActivateIsAccurateOverTheWholeRange) {
  const auto ops = Make(2);
  if (Lacks(*ops, {Capability::kActivate, Capability::kGelu, Capability::kQuickGelu})) return;
  const std::vector<float> x = WholeRange();
  for (const Activation activation :
       {Activation::kGelu, Activation::kGeluTanh, Activation::kQuickGelu, Activation::kSilu}) {
    WorstError worst(fmt::format("{} activation {}", ops->name(), static_cast<int>(activation)));
    const std::vector<float> actual = RunActivate(*ops, activation, x);
    for (size_t i = 0; i < x.size(); ++i) {
      const double value = x[i], expected = Exact(activation, value);
      // An error of the exponent is a relative error of the result: x² / 2 for gelu, u for
      // gelu_tanh, 1.702 x for quick_gelu.
      double exponent = 0;
      if (activation == Activation::kGelu) exponent = value * value;
      if (activation == Activation::kGeluTanh) {
        exponent = 8 * std::abs(value + 0.045 * value * value * value);
      }
      if (activation == Activation::kQuickGelu) exponent = 4 * std::abs(value);
      const double relative = std::min(kUnit * (12 + exponent), 1.0);
      worst.Compare(actual[i], static_cast<float>(expected),
                    value > 0 ? 12 * kUnit * expected : relative * std::abs(expected) + 1e-36,
                    [&] { return fmt::format("of {}", value); });
    }
  }
  EXPECT_TRUE(std::isnan(RunActivate(*ops, Activation::kGelu, {NAN})[0]));
}

TEST_P(ActivationOps, GatesMatchTheFormulas) {
  const auto ops = Make(2);
  std::mt19937_64 random(1);
  WorstError worst(fmt::format("{} gates", ops->name()));
  for (const Activation activation :
       {Activation::kGelu, Activation::kQuickGelu, Activation::kClampedSwiglu}) {
    if (!ops->capabilities().Has(NeedsOf(activation))) continue;
    for (const int64_t rows : {0, 1, 3, 33}) {
      for (const int64_t width : {1, 19, 1536}) {
        // Many values lie beyond the limit, on both sides.
        const std::vector<float> both = RandomFloats(random, rows * 2 * width, 8.0f);
        OpRunner run(*ops);
        const GatedActivation op = {.gate_up = run.Floats(both, {rows, 2 * width}),
                                    .activation = activation,
                                    .out = run.Output({rows, width}),
                                    .limit = 7,
                                    .alpha = 1.702f};
        run.Run(op);
        const std::vector<float> actual = run.Download(op.out);
        for (int64_t i = 0; i < rows * width; ++i) {
          const auto at = static_cast<size_t>(i / width * 2 * width + i % width);
          double gate = both[at], up = both[at + static_cast<size_t>(width)];
          double expected = 0;
          if (activation == Activation::kClampedSwiglu) {
            gate = std::min(gate, 7.0);
            up = std::clamp(up, -7.0, 7.0);
            expected = (up + 1) * gate / (1 + std::exp(-double{1.702f} * gate));
          } else {
            expected = Exact(activation, gate) * up;
          }
          worst.Compare(actual[static_cast<size_t>(i)], static_cast<float>(expected),
                        kUnit * (14 + gate * gate) * std::abs(expected) + 1e-36,
                        [&] { return fmt::format("{}x{} [{}]", rows, width, i); });
        }
      }
    }
  }
}

TEST_P(ActivationOps, ActivateRoundsToTheActivationType) {
  const auto ops = Make(2);
  if (Lacks(*ops, {Capability::kActivate, Capability::kGelu})) return;
  // Packing such a weight makes the backend support outputs of its activation type.
  const auto weight =
      ops->PackWeight({.parts = {MemorySource::Random("weight", DType::kQ8_0, {1, 64}, 1)}});
  ASSERT_TRUE(weight.ok());
  std::mt19937_64 random(2);
  const std::vector<float> x = RandomFloats(random, 3 * 64, 3.0f);
  const auto run_to = [&](DType dtype) {
    OpRunner run(*ops);
    const Activate op = {.x = run.Floats(x, {3, 64}),
                         .activation = Activation::kGelu,
                         .out = run.Output({3, 64}, dtype)};
    run.Run(op);
    return run.Download(op.out);
  };
  for (const DType activation : GetParam().activations) {
    EXPECT_TRUE(SameBits(run_to(activation), RoundTo(activation, run_to(DType::kF32))));
  }
}

// Inputs in an inner type give what their values give in f32. Rows lie in a wider tensor, some so
// that vectors cannot read them; nothing is written beside them.
TEST_P(ActivationOps, InnerInputsAreReadAsTheirValues) {
  const auto ops = Make(2);
  if (Lacks(*ops, {Capability::kActivate, Capability::kGelu, Capability::kClamp,
                   Capability::kAddResidual})) {
    return;
  }
  std::mt19937_64 random(3);
  constexpr int64_t kRows = 3;
  for (const int64_t cols : {1, 6, 1028}) {
    const std::vector<float> x =
        RoundTo(GetParam().inner, RandomFloats(random, kRows * cols, 3.0f));
    const std::vector<float> sum = RandomFloats(random, kRows * cols);
    const auto run_all = [&](DType dtype, int64_t offset) {
      OpRunner run(*ops);
      const Shape wide{kRows, offset + (cols / 4 + 2) * 4};
      const auto upload = [&](const std::vector<float>& values, DType type) {
        std::vector<float> padded(static_cast<size_t>(wide.elements()), NAN);
        for (int64_t row = 0; row < kRows; ++row) {
          std::copy_n(values.begin() + row * cols, cols,
                      padded.begin() + row * wide.cols() + offset);
        }
        return run.Rounded(padded, type, wide);
      };
      const auto rows = [&](const Tensor& tensor) { return tensor.Cols(offset, offset + cols); };
      const Tensor activated = run.Output(wide), clamped = upload(x, dtype);
      const Tensor residual = upload(sum, DType::kF32);
      run.Run(Activate{
          .x = rows(upload(x, dtype)), .activation = Activation::kGelu, .out = rows(activated)});
      run.Run(Clamp{.x = rows(clamped), .limit = 1.5f});
      run.Run(AddResidual{.x = rows(upload(x, dtype)), .residual = rows(residual)});
      std::vector<float> all;
      for (const Tensor& tensor : {activated, clamped, residual}) {
        const std::vector<float> whole = run.Download(tensor), part = run.Download(rows(tensor));
        EXPECT_EQ(std::count_if(whole.begin(), whole.end(), [](float v) { return std::isnan(v); }),
                  kRows * (wide.cols() - cols));
        all.insert(all.end(), part.begin(), part.end());
      }
      return all;
    };
    const std::vector<float> expected = run_all(DType::kF32, 0);
    for (const int64_t offset : {0, 1, 4}) {
      EXPECT_TRUE(SameBits(run_all(GetParam().inner, offset), expected)) << cols << ", " << offset;
    }
  }
}

TEST_P(ActivationOps, ClampKeepsNanAndLimitsTheRest) {
  const auto ops = Make(2);
  if (Lacks(*ops, Capability::kClamp)) return;
  const float inf = std::numeric_limits<float>::infinity();
  std::vector<float> x = {0, -0.0f, 1.5f, -1.5f, 1.4999f, 2, -2, inf, -inf, NAN, 1e-40f};
  const std::vector<float> expected = {0,     -0.0f, 1.5f,  -1.5f, 1.4999f, 1.5f,
                                       -1.5f, 1.5f,  -1.5f, NAN,   1e-40f};
  OpRunner run(*ops);
  const Clamp op = {.x = run.Floats(x, {1, 11}), .limit = 1.5f};
  run.Run(op);
  EXPECT_TRUE(SameBits(run.Download(op.x), expected));
}

}  // namespace
}  // namespace tokamak
