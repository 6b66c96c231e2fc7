// AddRmsNorm and AddLayerNorm on every backend, against the reference and the formula.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <utility>
#include <vector>

#include "ops/reference/reference_ops.h"
#include "ops/testing/memory_source.h"
#include "ops/testing/op_harness.h"

namespace tokamak {
namespace {

class NormOps : public OpTest {};
INSTANTIATE_TEST_SUITE_P(All, NormOps, ::testing::ValuesIn(OpBackends()), OpBackendName);
INSTANTIATE_TEST_SUITE_P(Triton, NormOps, ::testing::ValuesIn(TritonCudaBackend()), OpBackendName);

struct NormCase {
  int64_t rows, cols;
  std::vector<float> x, residual, weight;
  bool add;
  int64_t offset = 0;         // rows begin at this column of wider tensors
  DType inner = DType::kF32;  // of x, or of the residual if nothing is added
};

// `values` as [rows, cols] of the case, its other columns NaN.
Tensor UploadRows(OpRunner& run, const std::vector<float>& values, const NormCase& c,
                  DType dtype = DType::kF32) {
  const int64_t width = c.cols + 2 * c.offset;
  std::vector<float> wide(static_cast<size_t>(c.rows * width), NAN);
  for (int64_t row = 0; row < c.rows; ++row) {
    std::copy_n(values.begin() + row * c.cols, c.cols, wide.begin() + row * width + c.offset);
  }
  return run.Rounded(wide, dtype, {c.rows, width}).Cols(c.offset, c.offset + c.cols);
}

// Returns the residual and the output.
std::pair<std::vector<float>, std::vector<float>> RunNorm(Ops& ops, const NormCase& c) {
  OpRunner run(ops);
  AddRmsNorm op;
  const Tensor x = UploadRows(run, c.x, c, c.inner);
  if (c.add) op.x = &x;
  op.residual = UploadRows(run, c.residual, c, c.add ? DType::kF32 : c.inner);
  op.weight = run.Floats(c.weight, {c.cols});
  op.eps = 1e-5f;
  op.out = run.Output({c.rows, c.cols + 2 * c.offset}).Cols(c.offset, c.offset + c.cols);
  run.Run(op);
  return {run.Download(op.residual), run.Download(op.out)};
}

TEST_P(NormOps, AddRmsNormMatchesTheReference) {
  std::mt19937_64 random(1);
  const auto ops = Make(2);
  const auto reference = MakeReferenceOps();
  WorstError worst(fmt::format("{} add_rms_norm", ops->name()));
  for (const int64_t cols : {1, 15, 64, 576, 4099, 6000, 12001, 20000, 33333}) {
    for (const int64_t rows : {0, 1, 3, 70}) {
      if (rows * cols > 300000) continue;  // long rows, few of them
      for (const bool add : {false, true}) {
        NormCase c = {rows,
                      cols,
                      RandomFloats(random, rows * cols),
                      RandomFloats(random, rows * cols, 30.0f),
                      RandomFloats(random, cols),
                      add};
        const auto expected = RunNorm(*reference, c);
        const auto actual = RunNorm(*ops, c);
        EXPECT_TRUE(SameBits(actual.first, expected.first));
        const double sum_error = 2 + std::sqrt(static_cast<double>(cols)) / 2;
        for (size_t i = 0; i < expected.second.size(); ++i) {
          worst.Compare(actual.second[i], expected.second[i],
                        kUnit * (4 + sum_error) * std::abs(expected.second[i]) + 1e-38,
                        [&] { return fmt::format("{}x{} [{}]", rows, cols, i); });
        }
      }
    }
  }
}

// Rows that fit into registers and longer ones; rows of the copy that vectors can write or not,
// because they lie in wider ones.
TEST_P(NormOps, NormAndConvertGivesTheNormAndItsRoundedCopy) {
  std::mt19937_64 random(9);
  const auto ops = Make(2);
  if (Lacks(*ops, Capability::kConvert)) return;
  for (const int64_t cols : {96, 4096, 20000}) {
    // Packing such a weight makes the backend support outputs of its activation type.
    const auto weight_of_the_width =
        ops->PackWeight({.parts = {MemorySource::Random("weight", DType::kQ8_0, {1, cols}, 1)}});
    ASSERT_TRUE(weight_of_the_width.ok());
    NormCase c = {3,
                  cols,
                  RandomFloats(random, 3 * cols),
                  RandomFloats(random, 3 * cols),
                  RandomFloats(random, cols),
                  true};
    const auto expected = RunNorm(*ops, c);
    for (const DType dtype : GetParam().activations) {
      for (const int64_t beside : {0, 1, 4}) {
        if (beside > 0 && dtype == DType::kI8Blocks) continue;
        OpRunner run(*ops);
        const Tensor x = UploadRows(run, c.x, c);
        const AddRmsNorm norm = {.x = &x,
                                 .residual = UploadRows(run, c.residual, c),
                                 .weight = run.Floats(c.weight, {cols}),
                                 .eps = 1e-5f,
                                 .out = run.Output({c.rows, cols})};
        const Tensor copy =
            run.Output({c.rows, cols + 2 * beside}, dtype).Cols(beside, beside + cols);
        run.Run(NormAndConvert{.norm = norm, .convert = {.x = norm.out, .out = copy}});
        EXPECT_TRUE(SameBits(run.Download(norm.residual), expected.first)) << cols;
        EXPECT_TRUE(SameBits(run.Download(norm.out), expected.second)) << cols;
        EXPECT_TRUE(SameBits(run.Download(copy), RoundTo(dtype, expected.second)))
            << cols << ", " << Name(dtype) << ", " << beside;
      }
    }
  }
}

struct LayerNormCase {
  NormCase norm;
  std::vector<float> bias;  // or none
  bool in_place = false;
};

// Returns the residual (unless in place) and the output.
std::pair<std::vector<float>, std::vector<float>> RunLayerNorm(Ops& ops, const LayerNormCase& c) {
  OpRunner run(ops);
  AddLayerNorm op;
  const NormCase& norm = c.norm;
  const Tensor x = UploadRows(run, norm.x, norm, norm.inner);
  if (norm.add) op.x = &x;
  op.residual = UploadRows(run, norm.residual, norm);
  op.weight = run.Floats(norm.weight, {norm.cols});
  if (!c.bias.empty()) op.bias = run.Floats(c.bias, {norm.cols});
  op.eps = 1e-5f;
  op.out = c.in_place ? op.residual
                      : run.Output({norm.rows, norm.cols + 2 * norm.offset})
                            .Cols(norm.offset, norm.offset + norm.cols);
  run.Run(op);
  return {c.in_place ? std::vector<float>() : run.Download(op.residual), run.Download(op.out)};
}

// Computed in double from the formula: [rows, cols].
std::vector<double> ExactLayerNorm(const LayerNormCase& c) {
  const NormCase& norm = c.norm;
  std::vector<double> out;
  for (int64_t row = 0; row < norm.rows; ++row) {
    std::vector<double> values;
    double sum = 0, square_sum = 0;
    for (int64_t i = row * norm.cols; i < (row + 1) * norm.cols; ++i) {
      const auto at = static_cast<size_t>(i);
      const float value = norm.add ? norm.residual[at] + norm.x[at] : norm.residual[at];
      values.push_back(value);
      sum += value;
      square_sum += double{value} * value;
    }
    const auto n = static_cast<double>(norm.cols);
    const double variance = std::max(0.0, square_sum / n - sum / n * (sum / n));
    for (size_t i = 0; i < values.size(); ++i) {
      out.push_back((values[i] - sum / n) / std::sqrt(variance + 1e-5f) * norm.weight[i] +
                    (c.bias.empty() ? 0 : c.bias[i]));
    }
  }
  return out;
}

TEST_P(NormOps, AddLayerNormMatchesTheFormula) {
  std::mt19937_64 random(15);
  const auto ops = Make(2);
  if (Lacks(*ops, Capability::kLayerNorm)) return;
  WorstError worst(fmt::format("{} add_layer_norm", ops->name()));
  for (const int64_t cols : {1, 15, 64, 576, 4099}) {
    for (const int64_t rows : {0, 1, 3, 70}) {
      for (const bool add : {false, true}) {
        for (const bool bias : {false, true}) {
          LayerNormCase c = {
              .norm = {rows, cols, RandomFloats(random, rows * cols),
                       RandomFloats(random, rows * cols, 3.0f), RandomFloats(random, cols), add},
              .bias = bias ? RandomFloats(random, cols) : std::vector<float>()};
          for (float& value : c.norm.residual) value += 10;  // a mean to subtract
          const std::vector<double> expected = ExactLayerNorm(c);
          const auto [residual, actual] = RunLayerNorm(*ops, c);
          ASSERT_EQ(actual.size(), expected.size());
          // A value near the mean has the error of the mean: from rounding values near 10, and from
          // adding them up in 16 lanes.
          const double sum_error = 2 + std::sqrt(static_cast<double>(cols)) / 2;
          const double scale = cols == 1 ? 400 : 1;  // 1 / sqrt(eps) or about 1 / deviation
          for (size_t i = 0; i < expected.size(); ++i) {
            worst.Compare(actual[i], static_cast<float>(expected[i]),
                          kUnit * (20 * scale + sum_error * (4 + std::abs(expected[i]))),
                          [&] { return fmt::format("{}x{} [{}]", rows, cols, i); });
          }
          c.in_place = true;
          EXPECT_TRUE(SameBits(RunLayerNorm(*ops, c).second, actual));
        }
      }
    }
  }
}

// Inputs in an inner type give what their values give in f32.
TEST_P(NormOps, InnerInputsAreReadAsTheirValues) {
  if (GetParam().inner == DType::kF32) GTEST_SKIP() << "all inputs are f32";
  std::mt19937_64 random(7);
  const auto ops = Make(1);
  for (const int64_t cols : {15, 1000, 5120, 20000}) {
    for (const bool add : {false, true}) {
      NormCase c = {.rows = 2,
                    .cols = cols,
                    .x = RoundTo(GetParam().inner, RandomFloats(random, 2 * cols)),
                    .residual = RoundTo(GetParam().inner, RandomFloats(random, 2 * cols)),
                    .weight = RandomFloats(random, cols),
                    .add = add};
      const auto expected = RunNorm(*ops, c);
      c.inner = GetParam().inner;
      for (c.offset = 0; c.offset < 3; ++c.offset) {
        const auto actual = RunNorm(*ops, c);
        EXPECT_TRUE(SameBits(actual.first, expected.first)) << cols;
        EXPECT_TRUE(SameBits(actual.second, expected.second)) << cols;
      }
    }
  }
}

// The same for AddLayerNorm; also rows that vectors cannot read.
TEST_P(NormOps, LayerNormReadsInnerInputsAsTheirValues) {
  std::mt19937_64 random(8);
  const auto ops = Make(1);
  if (Lacks(*ops, Capability::kLayerNorm)) return;
  const DType inner = GetParam().inner;
  for (const int64_t cols : {15, 1000, 5120, 20000}) {
    LayerNormCase c = {.norm = {2, cols, RoundTo(inner, RandomFloats(random, 2 * cols)),
                                RandomFloats(random, 2 * cols), RandomFloats(random, cols), true},
                       .bias = RandomFloats(random, cols)};
    const auto expected = RunLayerNorm(*ops, c);
    c.norm.inner = inner;
    for (c.norm.offset = 0; c.norm.offset < 3; ++c.norm.offset) {
      const auto actual = RunLayerNorm(*ops, c);
      EXPECT_TRUE(SameBits(actual.first, expected.first)) << cols;
      EXPECT_TRUE(SameBits(actual.second, expected.second)) << cols;
    }
  }
}

// Rows that vectors cannot read: in a wider tensor, at odd addresses.
TEST_P(NormOps, ARowsBitsDoNotDependOnItsAddress) {
  std::mt19937_64 random(6);
  const auto ops = Make(1);
  for (const int64_t cols : {1000, 5120, 12288, 20000}) {
    NormCase c = {2,
                  cols,
                  RandomFloats(random, 2 * cols),
                  RandomFloats(random, 2 * cols),
                  RandomFloats(random, cols),
                  true};
    const auto expected = RunNorm(*ops, c);
    for (c.offset = 1; c.offset < 4; c.offset += 2) {
      const auto actual = RunNorm(*ops, c);
      EXPECT_TRUE(SameBits(actual.first, expected.first)) << cols;
      EXPECT_TRUE(SameBits(actual.second, expected.second)) << cols;
    }
  }
}

TEST_P(NormOps, ARowsBitsDependOnNothingButTheRow) {
  std::mt19937_64 random(5);
  const auto ops = Make(1);
  const auto others = Make(3);
  const NormCase norm = {90,
                         1000,
                         RandomFloats(random, 90000),
                         RandomFloats(random, 90000),
                         RandomFloats(random, 1000),
                         true};
  const auto all = RunNorm(*ops, norm);
  EXPECT_TRUE(SameBits(RunNorm(*others, norm).second, all.second));
  NormCase one = norm;
  one.rows = 1;
  one.x.assign(norm.x.begin() + 41000, norm.x.begin() + 42000);
  one.residual.assign(norm.residual.begin() + 41000, norm.residual.begin() + 42000);
  EXPECT_TRUE(SameBits(RunNorm(*others, one).second,
                       {all.second.begin() + 41000, all.second.begin() + 42000}));

  if (ops->capabilities().Has(Capability::kLayerNorm)) {
    LayerNormCase c = {.norm = norm, .bias = RandomFloats(random, 1000)};
    const auto rows = RunLayerNorm(*ops, c);
    EXPECT_TRUE(SameBits(RunLayerNorm(*others, c).second, rows.second));
    c.norm = one;
    EXPECT_TRUE(SameBits(RunLayerNorm(*others, c).second,
                         {rows.second.begin() + 41000, rows.second.begin() + 42000}));
  }
}

}  // namespace
}  // namespace tokamak
