// Linear and Embed with every weight type on every backend, against the reference.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include "base/hash.h"
#include "ops/cpu/cpu_ops.h"
#include "ops/random_weight.h"
#include "ops/reference/reference_ops.h"
#include "ops/testing/bf16_recipes.h"
#include "ops/testing/memory_source.h"
#include "ops/testing/op_harness.h"

namespace tokamak {
namespace {

class LinearOps : public OpTest {};
INSTANTIATE_TEST_SUITE_P(All, LinearOps, ::testing::ValuesIn(OpBackends()), OpBackendName);
INSTANTIATE_TEST_SUITE_P(Plain, LinearOps, ::testing::ValuesIn(PlainCudaBackend()), OpBackendName);
class CpuLinearOps : public LinearOps {};
INSTANTIATE_TEST_SUITE_P(All, CpuLinearOps, ::testing::ValuesIn(CpuOpBackends()), OpBackendName);

struct LinearCase {
  std::vector<std::shared_ptr<const WeightSource>> parts;
  int64_t num_tokens = 0;
  int64_t rows = 0;
  int64_t cols = 0;
  std::vector<float> x;     // [num_tokens, cols]
  std::vector<float> bias;  // [rows] or empty
};

LinearCase RandomCase(std::mt19937_64& random, const std::vector<std::pair<DType, int64_t>>& parts,
                      int64_t cols, int64_t num_tokens, bool bias) {
  LinearCase c;
  c.num_tokens = num_tokens;
  c.cols = cols;
  for (const auto& [dtype, rows] : parts) {
    c.parts.push_back(MemorySource::Random("weight", dtype, {rows, cols}, random()));
    c.rows += rows;
  }
  c.x = RandomFloats(random, num_tokens * cols);
  if (bias) c.bias = RandomFloats(random, c.rows);
  return c;
}

std::unique_ptr<PackedWeight> PackWeight(Ops& ops, const LinearCase& c,
                                         WeightUse use = WeightUse::kLinear) {
  Result<std::unique_ptr<PackedWeight>> weight = ops.PackWeight({.parts = c.parts, .use = use});
  CHECK_MSG(weight.ok(), weight.status().ToString());
  return *std::move(weight);
}

// Returns the case with weights and inputs rounded to the types in which the backend multiplies
// them. Its exact result is what the backend should compute.
LinearCase Rounded(const LinearCase& c, DType dtype) {
  if (dtype == DType::kF32) return c;
  LinearCase rounded = c;
  rounded.x = RoundTo(dtype, c.x);
  if (dtype == DType::kI8Blocks) return rounded;  // weights keep their types
  for (auto& part : rounded.parts) {
    part = MemorySource::Quantize(part->name(), dtype, part->shape(),
                                  static_cast<const MemorySource&>(*part).Dequantized());
  }
  return rounded;
}

// A column range of a wider tensor, as in merged projections, or a whole tensor.
enum class Out { kRange, kWhole };

// Runs tokens [begin, end) of the case in one call.
std::vector<float> RunLinear(Ops& ops, const PackedWeight& weight, const LinearCase& c,
                             int64_t begin, int64_t end, Out out = Out::kRange) {
  OpRunner run(ops);
  Linear op;
  op.x = run.Rounded(c.x, weight.activation(), {c.num_tokens, c.cols}).Rows(begin, end);
  op.weight = &weight;
  if (!c.bias.empty()) op.bias = run.Floats(c.bias, {c.rows});
  op.out = out == Out::kRange
               ? run.Output({end - begin, c.rows + 5}, weight.output()).Cols(3, 3 + c.rows)
               : run.Output({end - begin, c.rows}, weight.output());
  run.Run(op);
  return run.Download(op.out);
}

std::vector<float> RunLinear(Ops& ops, const LinearCase& c, Out out = Out::kRange) {
  return RunLinear(ops, *PackWeight(ops, c), c, 0, c.num_tokens, out);
}

// Rounding errors of a sum of `cols` products grow with √cols; a missing or doubled term is about 1
// / cols of the norms.
void CheckLinear(Ops& ops, Ops& reference, const LinearCase& given, WorstError& worst,
                 const std::string& where, Out out = Out::kRange) {
  const auto weight = PackWeight(ops, given);
  const LinearCase c = Rounded(given, weight->activation());
  const std::vector<float> expected = RunLinear(reference, c, out);
  const std::vector<float> actual = RunLinear(ops, *weight, c, 0, c.num_tokens, out);
  std::vector<double> row_norms;
  for (const auto& part : c.parts) {
    const std::vector<float> values = static_cast<const MemorySource&>(*part).Dequantized();
    for (int64_t n = 0; n < part->shape().rows(); ++n) {
      row_norms.push_back(Norm(values.data() + n * c.cols, c.cols));
    }
  }
  for (int64_t t = 0; t < c.num_tokens; ++t) {
    const double x_norm = Norm(c.x.data() + t * c.cols, c.cols);
    for (int64_t n = 0; n < c.rows; ++n) {
      const auto i = static_cast<size_t>(t * c.rows + n);
      const double tolerance = kUnit * (std::sqrt(static_cast<double>(c.cols)) * x_norm *
                                            row_norms[static_cast<size_t>(n)] +
                                        2 * std::abs(expected[i]));
      worst.Compare(actual[i], expected[i], tolerance,
                    [&] { return fmt::format("{}, [{}, {}]", where, t, n); });
    }
  }
}

TEST_P(LinearOps, LinearMatchesTheReferenceForEveryTypeAndShape) {
  std::mt19937_64 random(1);
  const auto ops = Make(2);
  const auto reference = MakeReferenceOps();
  for (const DType dtype : WeightTypes()) {
    WorstError worst(fmt::format("{} linear {}", ops->name(), Name(dtype)));
    const int64_t block = Info(dtype).block_elements;
    const int64_t plain = block == 1 ? 7 : 0;  // no vector width divides the number of columns
    for (const int64_t cols : {block + plain, 768 + plain}) {
      for (const int64_t rows : {1, 16, 37, 130}) {
        for (const int64_t num_tokens : {1, 2, 3, 5, 7, 19}) {
          const LinearCase c =
              RandomCase(random, {{dtype, rows}}, cols, num_tokens, num_tokens % 2 == 1);
          CheckLinear(*ops, *reference, c, worst, fmt::format("{}x{}x{}", num_tokens, rows, cols));
        }
      }
    }
  }
}

TEST_P(LinearOps, LinearOfManyRowsAndPanels) {
  std::mt19937_64 random(2);
  const auto ops = Make(2);
  const auto reference = MakeReferenceOps();
  WorstError worst(fmt::format("{} linear, large", ops->name()));
  CheckLinear(*ops, *reference, RandomCase(random, {{DType::kQ4_1, 1100}}, 320, 131, true), worst,
              "131x1100x320");
  CheckLinear(*ops, *reference, RandomCase(random, {{DType::kF16, 70}}, 1000, 300, false), worst,
              "300x70x1000");
}

// Shapes of models, for which backends may have faster kernels, with numbers of tokens around the
// thresholds between kernels.
TEST_P(LinearOps, LinearOfModelShapes) {
  std::mt19937_64 random(10);
  const auto ops = Make(2);
  const auto reference = MakeReferenceOps();
  WorstError worst(fmt::format("{} linear, model shapes", ops->name()));
  for (const auto& [rows, cols] :
       std::vector<std::pair<int64_t, int64_t>>{{960, 576}, {64, 1536}, {258, 128}, {31, 64}}) {
    for (const int64_t num_tokens : {1, 16, 17, 65, 130}) {
      CheckLinear(*ops, *reference,
                  RandomCase(random, {{DType::kBF16, rows}}, cols, num_tokens, num_tokens == 17),
                  worst, fmt::format("{}x{}x{}", num_tokens, rows, cols), Out::kWhole);
    }
  }
}

TEST_P(LinearOps, ARowsBitsDependOnNothingButTheRowInModelShapes) {
  std::mt19937_64 random(11);
  const auto ops = Make(2);
  for (const auto& [rows, cols] :
       std::vector<std::pair<int64_t, int64_t>>{{960, 576}, {64, 1536}, {258, 128}}) {
    const LinearCase c = RandomCase(random, {{DType::kBF16, rows}}, cols, 1100, true);
    const auto weight = PackWeight(*ops, c);
    const std::vector<float> all = RunLinear(*ops, *weight, c, 0, c.num_tokens, Out::kWhole);
    for (const auto& [begin, end] : std::vector<std::pair<int64_t, int64_t>>{
             {0, 1}, {7, 9}, {20, 36}, {50, 81}, {90, 155}, {200, 333}, {300, 815}, {3, 1050}}) {
      const std::vector<float> some = RunLinear(*ops, *weight, c, begin, end, Out::kWhole);
      EXPECT_TRUE(SameBits(some, {all.begin() + begin * c.rows, all.begin() + end * c.rows}))
          << rows << "x" << cols << ", tokens " << begin << " to " << end;
    }
  }
}

// Outputs in an inner type are the f32 outputs, rounded once. Where rows are aligned for the faster
// kernels in only one of the two types, the sums may differ, so bits are not compared.
TEST_P(LinearOps, InnerOutputsAreTheRoundedOnes) {
  std::mt19937_64 random(12);
  const auto ops = Make(2);
  for (const auto& [rows, cols] :
       std::vector<std::pair<int64_t, int64_t>>{{960, 576}, {64, 1536}, {258, 128}, {31, 63}}) {
    const LinearCase c = RandomCase(random, {{DType::kBF16, rows}}, cols, 290, false);
    const auto inner = PackWeight(*ops, c, WeightUse::kInnerLinear);
    ASSERT_EQ(inner->output(), GetParam().inner);
    if (inner->output() == DType::kF32) continue;
    const auto weight = PackWeight(*ops, c);
    for (const Out out : {Out::kWhole, Out::kRange}) {
      const std::vector<float> all = RunLinear(*ops, *inner, c, 0, c.num_tokens, out);
      const std::vector<float> sums = RunLinear(*ops, *weight, c, 0, c.num_tokens, out);
      if (rows % 8 == 0) {
        EXPECT_TRUE(SameBits(all, RoundTo(inner->output(), sums))) << rows << "x" << cols;
      }
      for (size_t i = 0; i < all.size(); ++i) {
        ASSERT_NEAR(all[i], sums[i], 0x1p-8 * std::abs(sums[i]) + 1e-4) << i;
      }
      for (const auto& [begin, end] :
           std::vector<std::pair<int64_t, int64_t>>{{0, 1}, {20, 36}, {50, 115}, {130, 280}}) {
        EXPECT_TRUE(SameBits(RunLinear(*ops, *inner, c, begin, end, out),
                             {all.begin() + begin * c.rows, all.begin() + end * c.rows}))
            << rows << "x" << cols << ", tokens " << begin << " to " << end;
      }
    }
  }
}

// Rounding hides nearly all differences between the orders of a sum. So the CUDA backend must find
// them in other ways when it compares algorithms, or one of many bits differs.
TEST_P(LinearOps, InnerBitsAreTheSameInEveryBatch) {
  std::mt19937_64 random(13);
  const auto ops = Make(2);
  for (int64_t cols = 64; cols <= 160; cols += 16) {
    const LinearCase c = RandomCase(random, {{DType::kBF16, 64 + cols % 24}}, cols, 370, false);
    const auto weight = PackWeight(*ops, c, WeightUse::kInnerLinear);
    const std::vector<float> all = RunLinear(*ops, *weight, c, 0, c.num_tokens, Out::kWhole);
    for (const int64_t tokens : {5, 37, 74}) {
      for (int64_t begin = 0; begin + tokens <= c.num_tokens; begin += tokens) {
        ASSERT_TRUE(
            SameBits(RunLinear(*ops, *weight, c, begin, begin + tokens, Out::kWhole),
                     {all.begin() + begin * c.rows, all.begin() + (begin + tokens) * c.rows}))
            << cols << " columns, tokens from " << begin << " in batches of " << tokens;
      }
    }
  }
}

TEST_P(LinearOps, StackedPartsOfDifferentTypes) {
  std::mt19937_64 random(3);
  const auto ops = Make(2);
  const auto reference = MakeReferenceOps();
  WorstError worst(fmt::format("{} linear, stacked", ops->name()));
  for (const int64_t num_tokens : {1, 9}) {
    CheckLinear(*ops, *reference,
                RandomCase(random, {{DType::kQ4_K, 33}, {DType::kQ6_K, 9}, {DType::kF32, 17}}, 512,
                           num_tokens, true),
                worst, "three parts");
  }
}

TEST_P(LinearOps, NoTokensIsNoWork) {
  std::mt19937_64 random(4);
  const auto ops = Make(2);
  EXPECT_TRUE(RunLinear(*ops, RandomCase(random, {{DType::kQ8_0, 20}}, 64, 0, true)).empty());
}

TEST_P(LinearOps, ARowsBitsDependOnNothingButTheRow) {
  std::mt19937_64 random(5);
  for (const DType dtype : WeightTypes()) {
    const LinearCase c = RandomCase(random, {{dtype, 83}, {DType::kF16, 9}}, 768, 150, true);
    const auto ops = Make(1);
    const auto weight = PackWeight(*ops, c);
    const std::vector<float> all = RunLinear(*ops, *weight, c, 0, c.num_tokens);
    for (const auto& [begin, end] : std::vector<std::pair<int64_t, int64_t>>{
             {0, 1}, {1, 2}, {149, 150}, {3, 5}, {10, 14}, {20, 27}, {40, 53}, {7, 140}}) {
      const std::vector<float> some = RunLinear(*ops, *weight, c, begin, end);
      EXPECT_TRUE(SameBits(some, {all.begin() + begin * c.rows, all.begin() + end * c.rows}))
          << Name(dtype) << ", tokens " << begin << " to " << end;
    }
    for (const int threads : {2, 3}) {
      const auto others = Make(threads);
      EXPECT_TRUE(SameBits(RunLinear(*others, c), all)) << Name(dtype) << ", " << threads;
    }
  }
}

// Backends choose by the number of rows how to compute a bf16 product, and small changes of a small
// number may change the choice. 455 columns are odd and no multiple of a tile.
TEST_P(LinearOps, ABf16RowsBitsAreTheSameInEveryBatch) {
  std::mt19937_64 random(12);
  const LinearCase c = RandomCase(random, {{DType::kBF16, 83}}, 455, 40, true);
  const auto ops = Make(1), others = Make(3);
  const auto weight = PackWeight(*ops, c), others_weight = PackWeight(*others, c);
  std::vector<float> alone;
  for (int64_t t = 0; t < c.num_tokens; ++t) {
    const std::vector<float> row = RunLinear(*ops, *weight, c, t, t + 1);
    alone.insert(alone.end(), row.begin(), row.end());
  }
  for (int64_t end = 1; end <= c.num_tokens; ++end) {
    const std::vector<float> expected(alone.begin(), alone.begin() + end * c.rows);
    EXPECT_TRUE(SameBits(RunLinear(*ops, *weight, c, 0, end), expected)) << end;
    EXPECT_TRUE(SameBits(RunLinear(*others, *others_weight, c, 0, end), expected)) << end;
  }
}

TEST_P(LinearOps, NanInARowStaysInThatRow) {
  std::mt19937_64 random(13);
  const auto ops = Make(2);
  for (const DType dtype : {DType::kBF16, DType::kF32, DType::kQ4_1}) {
    LinearCase c = RandomCase(random, {{dtype, 50}}, 96, 35, false);
    const std::vector<float> expected = RunLinear(*ops, c);
    c.x[17 * 96 + 95] = std::numeric_limits<float>::quiet_NaN();
    const std::vector<float> actual = RunLinear(*ops, c);
    for (int64_t i = 0; i < c.num_tokens * c.rows; ++i) {
      const auto at = static_cast<size_t>(i);
      if (i / c.rows == 17) {
        EXPECT_TRUE(std::isnan(actual[at])) << Name(dtype) << " " << i;
      } else {
        EXPECT_EQ(actual[at], expected[at]) << Name(dtype) << " " << i;
      }
    }
  }
}

// LinearArgmax of the case must match the outputs of Linear.
void CheckArgmax(Ops& ops, const LinearCase& c, const std::string& where) {
  const auto weight = PackWeight(ops, c);
  const std::vector<float> outputs = RunLinear(ops, *weight, c, 0, c.num_tokens);
  OpRunner run(ops);
  LinearArgmax op;
  op.x = run.Rounded(c.x, weight->activation(), {c.num_tokens, c.cols});
  op.weight = weight.get();
  if (!c.bias.empty()) op.bias = run.Floats(c.bias, {c.rows});
  op.out = {.values = run.Output({c.num_tokens}),
            .ids = run.Ints(std::vector<int32_t>(static_cast<size_t>(c.num_tokens), -1))};
  run.Run(op);
  const std::vector<float> values = run.Download(op.out.values);
  for (int64_t t = 0; t < c.num_tokens; ++t) {
    const auto begin = outputs.begin() + t * c.rows;
    const auto unusable = [](float x) { return std::isnan(x) || x == INFINITY; };
    const float value = values[static_cast<size_t>(t)];
    if (std::any_of(begin, begin + c.rows, unusable)) {
      EXPECT_TRUE(std::isnan(value)) << where << ", " << t;
      continue;
    }
    const auto largest = std::max_element(begin, begin + c.rows);  // the first of equal ones
    EXPECT_EQ(value, *largest) << where << ", " << t;
    EXPECT_EQ(op.out.ids.Row<int32_t>(0)[t], largest - begin) << where << ", " << t;
  }
}

TEST_P(CpuLinearOps, LinearArgmaxIsTheArgmaxOfLinear) {
  std::mt19937_64 random(21);
  const auto ops = Make(3);
  ASSERT_TRUE(ops->has_linear_argmax());
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kQ4_1, DType::kQ8_0}) {
    for (const int64_t rows : {1, 16, 37, 1000}) {
      for (const int64_t num_tokens : {1, 2, 13, 150}) {
        CheckArgmax(*ops, RandomCase(random, {{dtype, rows}}, 96, num_tokens, rows % 2 == 1),
                    fmt::format("{} {}x{}", Name(dtype), num_tokens, rows));
      }
    }
  }
}

TEST_P(CpuLinearOps, LinearArgmaxOfEqualAndOfUnusableOutputs) {
  std::mt19937_64 random(22);
  const auto ops = Make(3);
  ASSERT_TRUE(ops->has_linear_argmax());
  LinearCase c = RandomCase(random, {{DType::kQ8_0, 300}}, 96, 20, true);
  std::fill(c.bias.begin(), c.bias.end(), 0.0f);
  const std::shared_ptr<const WeightSource> part = c.parts[0];
  c.parts = {part, part, part};  // each output three times
  c.rows *= 3;
  c.bias.resize(900);
  std::fill_n(c.x.begin() + 5 * 96, 96, 0.0f);  // all outputs of token 5 are zero
  c.x[7 * 96] = std::numeric_limits<float>::quiet_NaN();
  CheckArgmax(*ops, c, "thrice");
  std::fill(c.bias.begin(), c.bias.end(), -INFINITY);
  CheckArgmax(*ops, c, "-Inf");
  c.bias[850] = -3;
  CheckArgmax(*ops, c, "all but one -Inf");
  c.bias[851] = INFINITY;
  CheckArgmax(*ops, c, "+Inf");
}

TEST_P(LinearOps, EmbedGivesTheRowsExactly) {
  std::mt19937_64 random(6);
  const auto ops = Make(2);
  const auto reference = MakeReferenceOps();
  for (const DType dtype : WeightTypes()) {
    const LinearCase c = RandomCase(random, {{dtype, 41}, {DType::kF16, 6}},
                                    dtype == DType::kF32 ? 300 : 768, 0, false);
    std::vector<int32_t> ids;
    for (int32_t id = 0; id < 47; ++id) ids.push_back((id * 13) % 47);
    const auto embed = [&](Ops& backend, WeightUse use, float scale = 1) {
      const auto weight = PackWeight(backend, c, use);
      OpRunner run(backend);
      const Embed op = {.ids = run.Ints(ids),
                        .table = weight.get(),
                        .scale = scale,
                        .out = run.Output({47, c.cols})};
      run.Run(op);
      return run.Download(op.out);
    };
    const std::vector<float> expected =
        RoundTo(GetParam().weights, embed(*reference, WeightUse::kEmbedding));
    EXPECT_TRUE(SameBits(embed(*ops, WeightUse::kEmbedding), expected)) << Name(dtype);
    EXPECT_TRUE(SameBits(embed(*ops, WeightUse::kTied), expected)) << Name(dtype);
    if (!ops->capabilities().Has(Capability::kEmbeddingScale)) continue;
    std::vector<float> scaled = expected;
    for (float& value : scaled) value *= 6.5f;
    EXPECT_TRUE(SameBits(embed(*ops, WeightUse::kTied, 6.5f), scaled)) << Name(dtype);
  }
}

// Rows given by a formula, in bf16 or another type.
class FormulaSource final : public WeightSource {
 public:
  FormulaSource(DType dtype, Shape shape) : dtype_(dtype), shape_(shape) {}
  const std::string& name() const override { return name_; }
  DType dtype() const override { return dtype_; }
  const Shape& shape() const override { return shape_; }
  Status ReadRows(int64_t begin, int64_t end, std::byte* destination) const override {
    std::vector<float> row(static_cast<size_t>(shape_.cols()));
    for (int64_t i = begin; i < end; ++i) {
      const uint64_t seed = kFormula.RowSeed(i);
      for (int64_t j = 0; j < shape_.cols(); ++j)
        row[static_cast<size_t>(j)] = kFormula.At(seed, j);
      QuantizeRow(dtype_, row.data(), shape_.cols(), destination);
      destination += RowBytes(dtype_, shape_.cols());
    }
    return Status();
  }
  std::optional<RandomWeight> random() const override { return kFormula; }

 private:
  static constexpr RandomWeight kFormula = {.seed = 77, .mean = 0.5f, .deviation = 0.02f};
  const std::string name_ = "formula";
  const DType dtype_;
  const Shape shape_;
};

TEST_P(LinearOps, RandomWeightsAreThoseOfTheirFormula) {
  const auto ops = Make(2);
  const auto reference = MakeReferenceOps();
  for (const DType dtype : {DType::kBF16, DType::kF32, DType::kQ8_0}) {
    const auto embed = [dtype](Ops& backend) {
      const auto source = std::make_shared<FormulaSource>(dtype, Shape{70, 96});
      auto weight = backend.PackWeight({.parts = {source, source}, .use = WeightUse::kEmbedding});
      CHECK_MSG(weight.ok(), weight.status().ToString());
      OpRunner run(backend);
      std::vector<int32_t> ids(140);
      std::iota(ids.begin(), ids.end(), 0);
      const Embed op = {.ids = run.Ints(ids), .table = weight->get(), .out = run.Output({140, 96})};
      run.Run(op);
      return run.Download(op.out);
    };
    EXPECT_TRUE(SameBits(embed(*ops), RoundTo(GetParam().weights, embed(*reference))))
        << Name(dtype);
  }
}

// Offsets of the f16 fields in a block of `dtype`.
std::vector<size_t> HalfFields(DType dtype) {
  switch (dtype) {
    case DType::kQ4_1:
    case DType::kQ5_1:
    case DType::kQ4_K:
    case DType::kQ5_K:
      return {0, 2};
    case DType::kQ2_K:
      return {80, 82};
    case DType::kQ3_K:
      return {108};
    case DType::kQ6_K:
      return {208};
    case DType::kMXFP4:
      return {};
    default:
      return {0};
  }
}

// Rows of random bits: files, unlike quantizers, may have negative scales, the largest codes
// everywhere, or denormals.
std::vector<std::byte> RandomBlocks(std::mt19937_64& random, DType dtype, Shape shape) {
  const auto block = static_cast<size_t>(Info(dtype).block_bytes);
  std::vector<std::byte> bytes(RowBytes(dtype, shape.cols()) * static_cast<size_t>(shape.rows()));
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  for (size_t i = 0; i < bytes.size(); i += block) {
    // Clearing the top exponent bit leaves finite numbers below 2, including denormals.
    for (const size_t field : HalfFields(dtype)) bytes[i + field + 1] &= std::byte{0xbf};
    if (dtype == DType::kF32 || dtype == DType::kBF16) bytes[i + block - 1] &= std::byte{0xbf};
  }
  return bytes;
}

TEST_P(LinearOps, EmbedOfRandomBlocksGivesTheRowsExactly) {
  std::mt19937_64 random(9);
  const auto ops = Make(2);
  for (const DType dtype : WeightTypes()) {
    const int64_t rows = 40, cols = 1024;
    const Shape shape{rows, cols};
    const auto source =
        std::make_shared<MemorySource>("random", dtype, shape, RandomBlocks(random, dtype, shape));
    const auto weight = ops->PackWeight({.parts = {source}, .use = WeightUse::kEmbedding});
    ASSERT_TRUE(weight.ok());
    std::vector<int32_t> ids(rows);
    std::iota(ids.begin(), ids.end(), 0);
    OpRunner run(*ops);
    const Embed op = {
        .ids = run.Ints(ids), .table = weight->get(), .out = run.Output({rows, cols})};
    run.Run(op);
    EXPECT_TRUE(SameBits(run.Download(op.out), RoundTo(GetParam().weights, source->Dequantized())))
        << Name(dtype);
  }
}

// If multiply-adds round once, all ISAs and machines give these bits, because lanes hold outputs
// and the order of sums is fixed. Seeds and inputs use no functions that C libraries may round
// differently.
struct LinearBits {
  DType dtype;
  uint64_t f32, int8;  // hashes of the outputs, by the activations' type
};
constexpr LinearBits kLinearBits[] = {
    {DType::kF32, 0x98b6d5400034ff1d, 0},
    {DType::kF16, 0xedf72cf0482e6be7, 0},
    {DType::kBF16, 0x1790a26ecfb95f82, 0},
    {DType::kQ4_0, 0xa5394a88a45e8100, 0x026b481696be92f7},
    {DType::kQ4_1, 0x704f7b1660acd4a5, 0x562594f0b7c80df3},
    {DType::kQ5_0, 0x54ddeaa548e86467, 0x4f51a334ef771946},
    {DType::kQ5_1, 0x1078db91415308fe, 0xd8ef5f7ea6127e3c},
    {DType::kQ8_0, 0xde9b4a9cbe1922f9, 0x982146336572a47a},
    {DType::kQ2_K, 0x135b58260ee53115, 0xfbc25824e7844ea4},
    {DType::kQ3_K, 0x541db42adf97f2c3, 0xb9a084d54c85b0f0},
    {DType::kQ4_K, 0x3845e8e3adba38d5, 0x92cd23814dfc362f},
    {DType::kQ5_K, 0xee20a30f888407a2, 0x2869cf861174d050},
    {DType::kQ6_K, 0x821abdeeeee88337, 0x5645d4e9e1bddff2},
    {DType::kIQ4_NL, 0xd6787d247932a13a, 0xbaa813b4ae8d8c61},
    {DType::kIQ4_XS, 0xe548c5fb71dd1891, 0xb327a131045b0b8f},
    {DType::kMXFP4, 0x9491c9973e240db6, 0x94db717805193442},
};

TEST_P(CpuLinearOps, BitsAreTheSameOnEveryMachine) {
  const std::vector<std::string> isas = CpuIsaNames();
  const bool x86 = std::find(isas.begin(), isas.end(), "avx2") != isas.end();
  const std::string& name = GetParam().name;
  if (x86 && name == "cpu_baseline_precise") GTEST_SKIP() << name << " has a recipe of its own";
  const auto ops = Make(2);
  constexpr RandomWeight kInput = {.seed = 12, .mean = 0.125f, .deviation = 1.5f};
  for (const auto& [dtype, f32, int8] : kLinearBits) {
    const Shape shape{37, 768};
    std::mt19937_64 random(13);
    std::vector<std::byte> bytes = RandomBlocks(random, dtype, shape);
    if (dtype == DType::kMXFP4) {  // small exponents, so that sums stay finite
      for (size_t i = 0; i < bytes.size(); i += 17)
        bytes[i] = (bytes[i] & std::byte{0x0f}) | std::byte{0x70};
    }
    LinearCase c;
    c.parts = {std::make_shared<MemorySource>("random", dtype, shape, bytes)};
    c.num_tokens = 19;
    c.rows = shape.rows();
    c.cols = shape.cols();
    for (int64_t i = 0; i < c.num_tokens * c.cols; ++i) {
      c.x.push_back(i / 32 == 5 ? 0 : kInput.At(kInput.RowSeed(0), i));
    }
    for (int64_t i = 0; i < c.rows; ++i) c.bias.push_back(kInput.At(kInput.RowSeed(1), i));
    const auto weight = PackWeight(*ops, c);
    // Each ISA sums bf16 products in its own order (cpu/bf16_kernels.h).
    if (weight->activation() == DType::kBF16) continue;
    const std::vector<float> out = RunLinear(*ops, *weight, c, 0, c.num_tokens, Out::kWhole);
    for (const float value : out) ASSERT_TRUE(std::isfinite(value)) << Name(dtype);
    const bool is_int8 = weight->activation() == DType::kI8Blocks;
    EXPECT_EQ(fmt::format("{:#018x}", Hash64(out.data(), out.size() * sizeof(float))),
              fmt::format("{:#018x}", is_int8 ? int8 : f32))
        << Name(dtype) << (is_int8 ? " int8" : " f32");
  }
}

void CheckBf16Recipe(const std::string& isa, float (*sum)(const float*, const float*, int64_t)) {
  const auto ops = MakeCpuOps({.threads = 2, .isa = isa});
  if (!ops.ok()) GTEST_SKIP() << ops.status().ToString();
  std::mt19937_64 random(14);
  const LinearCase c = RandomCase(random, {{DType::kBF16, 37}}, 1331, 45, false);
  const std::vector<float> x = RoundTo(DType::kBF16, c.x);
  const std::vector<float> w = static_cast<const MemorySource&>(*c.parts[0]).Dequantized();
  std::vector<float> expected;
  for (int64_t t = 0; t < c.num_tokens; ++t) {
    for (int64_t n = 0; n < c.rows; ++n) {
      expected.push_back(sum(w.data() + n * c.cols, x.data() + t * c.cols, c.cols));
    }
  }
  EXPECT_TRUE(SameBits(RunLinear(**ops, c), expected));
}
TEST(CpuIsas, Bf16FollowsTheRecipeOfAvx512) { CheckBf16Recipe("avx512bf16", Avx512Bf16Sum); }
TEST(CpuIsas, Bf16FollowsTheRecipeOfAmx) { CheckBf16Recipe("amx", AmxBf16Sum); }

TEST(CpuIsas, RefusesAnUnknownIsaAndNamesTheKnownOnes) {
  const Status status = MakeCpuOps({.threads = 1, .isa = "mmx"}).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("baseline"));
  EXPECT_FALSE(MakeCpuOps({.threads = -1}).ok());
}

}  // namespace
}  // namespace tokamak
