// The operations of MoE layers on every backend that has them.
#include "ops/moe.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <set>

#include "ops/reference/reference_ops.h"
#include "ops/testing/memory_source.h"
#include "ops/testing/op_harness.h"

namespace tokamak {
namespace {

class MoeOps : public OpTest {
 protected:
  void SetUp() override {
    OpTest::SetUp();
    if (IsSkipped()) return;
    ops_ = Make(2);
    if (Lacks(*ops_, Capability::kMoe)) return;
  }
  std::unique_ptr<Ops> ops_;
};
INSTANTIATE_TEST_SUITE_P(All, MoeOps, ::testing::ValuesIn(OpBackends()), OpBackendName);

class GroupedOps : public MoeOps {};
INSTANTIATE_TEST_SUITE_P(All, GroupedOps, ::testing::ValuesIn(OpBackends()), OpBackendName);
INSTANTIATE_TEST_SUITE_P(Plain, GroupedOps, ::testing::ValuesIn(PlainCudaBackend()), OpBackendName);

struct Route {
  std::vector<int32_t> experts, tokens, rows, offsets;
  std::vector<float> weights;
};

std::vector<int32_t> Ints(OpRunner& run, const Tensor& tensor) {
  const auto count = static_cast<size_t>(tensor.shape.elements());
  const std::vector<std::byte> bytes = run.DownloadBytes(tensor.data, 4 * count);
  std::vector<int32_t> values(count);
  std::copy(bytes.begin(), bytes.end(), reinterpret_cast<std::byte*>(values.data()));
  return values;
}

Tensor OutputInts(OpRunner& run, Shape shape) {
  const std::vector<int32_t> values(static_cast<size_t>(shape.elements()), -1);
  return run.Upload(values.data(), DType::kI32, shape);
}

Route RunRoute(Ops& ops, const RouterConfig& router, const std::vector<float>& logits,
               const std::vector<float>& bias) {
  OpRunner run(ops);
  const int64_t num_tokens = static_cast<int64_t>(logits.size()) / router.num_experts;
  const Shape pairs{num_tokens, router.top_k};
  const RouteTokens op = {.logits = run.Floats(logits, {num_tokens, router.num_experts}),
                          .bias = bias.empty() ? Tensor() : run.Floats(bias, {router.num_experts}),
                          .router = router,
                          .experts = OutputInts(run, pairs),
                          .weights = run.Output(pairs),
                          .tokens = OutputInts(run, {pairs.elements()}),
                          .rows = OutputInts(run, pairs),
                          .offsets = OutputInts(run, {router.num_experts + 1})};
  run.Run(op);
  return {Ints(run, op.experts), Ints(run, op.tokens), Ints(run, op.rows), Ints(run, op.offsets),
          run.Download(op.weights)};
}

// The definition in ops/moe.h, dense and in long double: experts sorted by descending choice.
struct Choice {
  std::vector<int32_t> experts;
  std::vector<double> weights;
};
Choice Choose(const RouterConfig& router, const float* logits, const std::vector<float>& bias) {
  const auto n = static_cast<size_t>(router.num_experts);
  std::vector<long double> score(n), choice(n);
  long double sum = 0;
  for (size_t e = 0; e < n; ++e) sum += score[e] = std::exp(static_cast<long double>(logits[e]));
  for (size_t e = 0; e < n; ++e) {
    if (router.score == RouterConfig::Score::kSoftmax) score[e] /= sum;
    if (router.score == RouterConfig::Score::kSigmoid) score[e] /= 1 + score[e];
    choice[e] = score[e] + (bias.empty() ? 0 : static_cast<long double>(bias[e]));
  }
  const size_t size = n / static_cast<size_t>(router.num_groups);
  std::vector<std::pair<long double, size_t>> groups;
  for (size_t g = 0; g * size < n; ++g) {
    std::vector<long double> of(choice.begin() + static_cast<int64_t>(g * size),
                                choice.begin() + static_cast<int64_t>((g + 1) * size));
    std::sort(of.rbegin(), of.rend());
    const bool two = router.group_score == RouterConfig::GroupScore::kTwoBest;
    groups.emplace_back(-(of[0] + (two ? of[1] : 0)), g);
  }
  std::sort(groups.begin(), groups.end());
  const long double last = router.score == RouterConfig::Score::kSoftmax ? 0 : -INFINITY;
  for (auto i = static_cast<size_t>(router.top_groups); i < groups.size(); ++i) {
    const size_t begin = groups[i].second * size;
    std::fill_n(choice.begin() + static_cast<int64_t>(begin), size, last);
  }
  Choice result;
  result.experts.resize(n);
  std::iota(result.experts.begin(), result.experts.end(), 0);
  std::stable_sort(result.experts.begin(), result.experts.end(), [&](int32_t a, int32_t b) {
    return choice[static_cast<size_t>(a)] > choice[static_cast<size_t>(b)];
  });
  result.experts.resize(static_cast<size_t>(router.top_k));
  long double divisor = 0;
  for (const int32_t e : result.experts) divisor += score[static_cast<size_t>(e)];
  const bool divide = router.normalize || router.score == RouterConfig::Score::kChosenSoftmax;
  for (const int32_t e : result.experts) {
    result.weights.push_back(
        static_cast<double>(score[static_cast<size_t>(e)] / (divide ? divisor : 1) * router.scale));
  }
  return result;
}

TEST_P(MoeOps, RoutesAsDefined) {
  using Router = RouterConfig;
  const Router routers[] = {
      {.num_experts = 1, .top_k = 1},
      {.num_experts = 8, .top_k = 2, .normalize = true},
      {.num_experts = 128, .top_k = 8, .normalize = true},
      {.num_experts = 60, .top_k = 4},
      {.num_experts = 16, .top_k = 16, .score = Router::Score::kSigmoid},
      {.num_experts = 32, .top_k = 4, .score = Router::Score::kChosenSoftmax},
      {.num_experts = 512, .top_k = 10, .normalize = true},
      {.num_experts = 1000, .top_k = 40, .score = Router::Score::kChosenSoftmax},
      {.num_experts = 160, .top_k = 6, .scale = 16, .num_groups = 8, .top_groups = 3},
      {.num_experts = 256,
       .top_k = 8,
       .score = Router::Score::kSigmoid,
       .normalize = true,
       .scale = 2.5f,
       .num_groups = 8,
       .top_groups = 4,
       .group_score = Router::GroupScore::kTwoBest},
  };
  std::mt19937_64 random(1);
  for (const Router& router : routers) {
    for (const bool with_bias : {false, true}) {
      if (with_bias && router.score != Router::Score::kSigmoid) continue;
      const auto experts = static_cast<size_t>(router.num_experts);
      const auto top_k = static_cast<size_t>(router.top_k);
      const size_t num_tokens = experts <= 16 ? 700 : 70;
      const std::vector<float> logits =
          RandomFloats(random, static_cast<int64_t>(experts * num_tokens), 3.0f);
      const std::vector<float> bias =
          with_bias ? RandomFloats(random, router.num_experts) : std::vector<float>();
      const Route route = RunRoute(*ops_, router, logits, bias);
      for (size_t t = 0; t < num_tokens; ++t) {
        const Choice expected = Choose(router, logits.data() + t * experts, bias);
        for (size_t j = 0; j < top_k; ++j) {
          ASSERT_EQ(route.experts[t * top_k + j], expected.experts[j])
              << experts << " experts, token " << t << ", choice " << j;
          EXPECT_NEAR(route.weights[t * top_k + j], expected.weights[j],
                      1e-6 * std::max(1.0, expected.weights[j]));
        }
      }
      // Rows are ordered by expert, then by token; `rows` is the inverse.
      ASSERT_EQ(route.offsets.front(), 0);
      ASSERT_EQ(route.offsets.back(), static_cast<int32_t>(num_tokens * top_k));
      for (size_t e = 0; e < experts; ++e) {
        for (int32_t row = route.offsets[e]; row < route.offsets[e + 1]; ++row) {
          const int32_t token = route.tokens[static_cast<size_t>(row)];
          if (row > route.offsets[e]) {
            EXPECT_LT(route.tokens[static_cast<size_t>(row - 1)], token);
          }
          const auto begin = static_cast<size_t>(token) * top_k;
          const auto j = std::find(route.experts.begin() + static_cast<int64_t>(begin),
                                   route.experts.begin() + static_cast<int64_t>(begin + top_k),
                                   static_cast<int32_t>(e)) -
                         route.experts.begin();
          ASSERT_LT(static_cast<size_t>(j), begin + top_k);
          EXPECT_EQ(route.rows[static_cast<size_t>(j)], row);
        }
      }
    }
  }
}

// Pearson's χ² of counts with equal expectations.
double ChiSquare(const std::vector<int64_t>& counts) {
  const auto total = std::accumulate(counts.begin(), counts.end(), 0.0);
  const double expected = total / static_cast<double>(counts.size());
  double sum = 0;
  for (const int64_t n : counts) {
    sum += (static_cast<double>(n) - expected) * (static_cast<double>(n) - expected) / expected;
  }
  return sum;
}

TEST_P(MoeOps, UniformRoutingIgnoresWhatLogitsMean) {
  const auto reference = MakeReferenceOps();
  for (const auto& [experts, top_k] : {std::pair<int32_t, int32_t>{6, 2}, {64, 6}, {128, 8}}) {
    const RouterConfig router = {.num_experts = experts,
                                 .top_k = top_k,
                                 .score = RouterConfig::Score::kUniform,
                                 .normalize = experts == 64,
                                 .scale = experts == 128 ? 2.5f : 1};
    constexpr int64_t kTokens = 3000;
    std::mt19937_64 random(7);
    std::vector<float> logits = RandomFloats(random, kTokens * experts, 0.01f);
    for (int64_t t = 0; t < kTokens; ++t) logits[static_cast<size_t>(t * experts)] += 9;  // skewed
    const Route route = RunRoute(*ops_, router, logits, {});
    EXPECT_EQ(route.experts, RunRoute(*reference, router, logits, {}).experts);
    for (const float weight : route.weights)
      EXPECT_FLOAT_EQ(weight, router.scale / static_cast<float>(top_k));
    const auto n = static_cast<size_t>(experts), k = static_cast<size_t>(top_k);
    std::vector<int64_t> of_expert(n), first_and_second(n * n);
    for (size_t t = 0; t < kTokens; ++t) {
      const auto begin = route.experts.begin() + static_cast<int64_t>(t * k);
      const std::set<int32_t> chosen(begin, begin + top_k);
      ASSERT_EQ(chosen.size(), k);
      ASSERT_TRUE(0 <= *chosen.begin() && *chosen.rbegin() < experts);
      for (const int32_t e : chosen) ++of_expert[static_cast<size_t>(e)];
      ++first_and_second[static_cast<size_t>(begin[0]) * n + static_cast<size_t>(begin[1])];
    }
    // Five standard deviations above the mean of χ² with n - 1 degrees of freedom; counts of tokens
    // that choose without repetition vary less.
    const double freedom = experts - 1;
    EXPECT_LT(ChiSquare(of_expert), freedom + 5 * std::sqrt(2 * freedom));
    if (experts > 6) continue;
    std::vector<int64_t> pairs;  // distinct ones
    for (size_t i = 0; i < n * n; ++i) {
      if (i % (n + 1) != 0) pairs.push_back(first_and_second[i]);
    }
    EXPECT_LT(ChiSquare(pairs), 29 + 5 * std::sqrt(2 * 29.0));
  }
}

TEST_P(MoeOps, RoutersRoundNothingAndTheBatchChangesNoBit) {
  std::mt19937_64 random(5);
  const auto reference = MakeReferenceOps();
  WorstError worst(fmt::format("{} linear, routers", ops_->name()));
  constexpr int64_t kTokens = 70;
  for (const auto& shape : {std::pair<int64_t, int64_t>{1, 576}, {60, 31}, {70, 260}, {3, 4612}}) {
    const int64_t rows = shape.first, cols = shape.second;
    const WeightSpec spec = {
        .parts = {MemorySource::Random("gate", DType::kF32, {rows, cols}, random())},
        .use = WeightUse::kRouter};
    const std::vector<float> x = RandomFloats(random, kTokens * cols);
    const std::vector<float> bias = RandomFloats(random, rows);
    const auto multiply = [&](Ops& ops, int64_t begin, int64_t end) {
      const auto weight = ops.PackWeight(spec);
      CHECK_MSG(weight.ok(), weight.status().ToString());
      EXPECT_EQ((*weight)->activation(), DType::kF32);
      OpRunner run(ops);
      const Tensor out = run.Output({end - begin, rows});
      run.Run(Linear{.x = run.Floats(x, {kTokens, cols}).Rows(begin, end),
                     .weight = weight->get(),
                     .bias = rows == 60 ? run.Floats(bias, {rows}) : Tensor(),
                     .out = out});
      return run.Download(out);
    };
    const std::vector<float> all = multiply(*ops_, 0, kTokens);
    // Up to `cols` roundings of sums that stay below 128.
    worst.Compare(all, multiply(*reference, 0, kTokens), static_cast<double>(cols) * 128 * kUnit,
                  fmt::format("{}x{}", rows, cols));
    for (const auto& [begin, end] : {std::pair<int64_t, int64_t>{0, 1}, {3, 68}, {60, 66}}) {
      EXPECT_TRUE(SameBits(multiply(*ops_, begin, end),
                           {all.begin() + begin * rows, all.begin() + end * rows}))
          << rows << "x" << cols << ", tokens " << begin << " to " << end;
    }
  }
}

TEST_P(MoeOps, EqualScoresGoToTheLowerExpertAndNanStaysInItsToken) {
  const RouterConfig router = {.num_experts = 4, .top_k = 2, .normalize = true};
  const Route route = RunRoute(*ops_, router, {1, 2, 2, 2, NAN, NAN, NAN, NAN, 5, NAN, 0, 1}, {});
  EXPECT_EQ((std::vector<int32_t>(route.experts.begin(), route.experts.begin() + 4)),
            (std::vector<int32_t>{1, 2, 0, 1}));
  EXPECT_EQ(route.weights[0], 0.5f);
  EXPECT_EQ(route.weights[1], 0.5f);
  for (size_t i = 2; i < 6; ++i) EXPECT_TRUE(std::isnan(route.weights[i])) << i;
  EXPECT_EQ(route.offsets.back(), 6);
  // Scores that differ in the last bits of a float, and zeros of both signs.
  const RouterConfig by_logits = {
      .num_experts = 4, .top_k = 2, .score = RouterConfig::Score::kChosenSoftmax};
  EXPECT_EQ(RunRoute(*ops_, by_logits,
                     {1, 1 + 0x1p-23f, 1 + 0x1p-22f, 1, -1, -0.0f, 0, -0.0f, -1, -1 - 0x1p-23f,
                      -1 - 0x1p-22f, -1 - 0x1p-21f, -INFINITY, NAN, NAN, -INFINITY},
                     {})
                .experts,
            (std::vector<int32_t>{2, 1, 1, 2, 0, 1, 0, 3}));
}

// Each expert's rows equal its Linear's bit for bit; other tests compare Linear with the reference.
TEST_P(MoeOps, GroupedLinearEqualsEachExpertsLinear) {
  std::mt19937_64 random(2);
  constexpr int64_t kRows = 75, kCols = 256;
  const std::vector<int32_t> offsets = {0, 0, 1, 1, 4, 40, 57, 57};  // 7 experts
  const int64_t num_rows = offsets.back();
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kQ4_1, DType::kQ4_K, DType::kQ6_K}) {
    for (const bool with_bias : {false, true}) {
      std::vector<WeightSpec> members;
      for (size_t e = 0; e + 1 < offsets.size(); ++e) {
        members.push_back(
            {.parts = {MemorySource::Random("a", dtype, {kRows - 20, kCols}, random()),
                       MemorySource::Random("b", dtype, {20, kCols}, random())}});
      }
      const auto stack = ops_->PackStack(members);
      ASSERT_TRUE(stack.ok());
      const std::vector<float> values = RandomFloats(random, num_rows * kCols);
      const auto experts = static_cast<int64_t>(members.size());
      const std::vector<float> bias = RandomFloats(random, experts * kRows);
      OpRunner run(*ops_);
      const Tensor x = run.Rounded(values, (*stack)->activation(), {num_rows, kCols});
      const Tensor biases = with_bias ? run.Floats(bias, {experts, kRows}) : Tensor();
      const Tensor out = run.Output({num_rows, kRows});
      run.Run(GroupedLinear{.x = x,
                            .weights = stack->get(),
                            .offsets = run.Ints(offsets),
                            .bias = biases,
                            .out = out});
      const std::vector<float> actual = run.Download(out);
      for (int64_t e = 0; e < experts; ++e) {
        const int64_t begin = offsets[static_cast<size_t>(e)];
        const int64_t end = offsets[static_cast<size_t>(e + 1)];
        if (begin == end) continue;
        const auto weight = ops_->PackWeight(members[static_cast<size_t>(e)]);
        ASSERT_TRUE(weight.ok());
        const Tensor alone = run.Output({end - begin, kRows});
        run.Run(Linear{.x = x.Rows(begin, end),
                       .weight = weight->get(),
                       .bias = with_bias ? run.Floats({bias.begin() + e * kRows,
                                                       bias.begin() + (e + 1) * kRows},
                                                      {kRows})
                                         : Tensor(),
                       .out = alone});
        EXPECT_TRUE(SameBits({actual.begin() + begin * kRows, actual.begin() + end * kRows},
                             run.Download(alone)))
            << Name(dtype) << ", expert " << e;
      }
    }
  }
}

// A stack of weights, rows of x for each of them, and biases.
struct GroupedCase {
  std::vector<int32_t> offsets;
  int64_t rows = 0, cols = 0;
  std::vector<WeightSpec> members;
  std::vector<float> x, bias;

  int64_t experts() const { return static_cast<int64_t>(members.size()); }
};

GroupedCase MakeGrouped(std::mt19937_64& random, const std::vector<int32_t>& offsets, int64_t rows,
                        int64_t cols, WeightUse use) {
  GroupedCase c;
  c.offsets = offsets;
  c.rows = rows;
  c.cols = cols;
  for (size_t e = 0; e + 1 < offsets.size(); ++e) {
    c.members.push_back(
        {.parts = {MemorySource::Random("w", DType::kBF16, {rows, cols}, random())}, .use = use});
  }
  // So that no backend rounds them.
  c.x = RoundTo(DType::kBF16, RandomFloats(random, offsets.back() * cols));
  c.bias = RandomFloats(random, c.experts() * rows);
  return c;
}

// Multiplies rows [begin, end) of x.
std::vector<float> RunGrouped(Ops& ops, const PackedStack& stack, const GroupedCase& c,
                              int32_t begin, int32_t end) {
  OpRunner run(ops);
  std::vector<int32_t> offsets;
  for (const int32_t offset : c.offsets) offsets.push_back(std::clamp(offset, begin, end) - begin);
  const int64_t num_rows = end - begin;
  const Tensor out = run.Output({num_rows, c.rows}, stack.output());
  run.Run(GroupedLinear{.x = run.Rounded({c.x.begin() + begin * c.cols, c.x.begin() + end * c.cols},
                                         stack.activation(), {num_rows, c.cols}),
                        .weights = &stack,
                        .offsets = run.Ints(offsets),
                        .bias = run.Floats(c.bias, {c.experts(), c.rows}),
                        .out = out});
  return run.Download(out);
}

TEST_P(GroupedOps, GroupedLinearMatchesTheReferenceAndTheCompanyChangesNoBit) {
  std::mt19937_64 random(4);
  const auto reference = MakeReferenceOps();
  WorstError worst(fmt::format("{} grouped_linear", ops_->name()));
  // Few rows each; a group with many, and one with more, which take larger tiles.
  const std::vector<std::vector<int32_t>> cases = {
      {0, 0, 1, 1, 4, 9, 9}, {0, 2, 133, 150}, {0, 2, 200, 203}};
  for (const std::vector<int32_t>& offsets : cases) {
    for (const auto& shape : {std::pair<int64_t, int64_t>{75, 136}, {72, 72}, {36, 31}}) {
      const int64_t rows = shape.first, cols = shape.second;
      for (const WeightUse use : {WeightUse::kLinear, WeightUse::kInnerLinear}) {
        const GroupedCase c = MakeGrouped(random, offsets, rows, cols, use);
        const auto stack = ops_->PackStack(c.members);
        const auto exact = reference->PackStack(c.members);
        ASSERT_TRUE(stack.ok() && exact.ok());
        const std::vector<float> all = RunGrouped(*ops_, **stack, c, 0, offsets.back());
        const std::vector<float> expected = RunGrouped(*reference, **exact, c, 0, offsets.back());
        const bool inner = (*stack)->output() == DType::kBF16;
        for (size_t i = 0; i < all.size(); ++i) {
          // Up to `cols` roundings of sums that stay below 64, and of the result.
          worst.Compare(
              all[i], expected[i],
              static_cast<double>(cols) * 64 * kUnit + (inner ? 0x1p-8 * std::abs(expected[i]) : 0),
              [&] { return fmt::format("{}x{}, {}", rows, cols, i); });
        }
        for (const auto& [begin, end] :
             {std::pair<int32_t, int32_t>{0, 1}, {2, 7}, {1, offsets.back() - 3}}) {
          EXPECT_TRUE(SameBits(RunGrouped(*ops_, **stack, c, begin, end),
                               {all.begin() + begin * rows, all.begin() + end * rows}))
              << rows << "x" << cols << ", rows " << begin << " to " << end;
        }
      }
    }
  }
}

// The rows of each token, [num_tokens, top_k]. All tokens have equally many.
Tensor RowsOf(OpRunner& run, const std::vector<int32_t>& tokens, int64_t num_tokens) {
  std::vector<int32_t> rows(tokens.size());
  std::iota(rows.begin(), rows.end(), 0);
  std::stable_sort(rows.begin(), rows.end(), [&](int32_t a, int32_t b) {
    return tokens[static_cast<size_t>(a)] < tokens[static_cast<size_t>(b)];
  });
  return run.Upload(rows.data(), DType::kI32,
                    {num_tokens, static_cast<int64_t>(tokens.size()) / num_tokens});
}

// Gathers tokens, multiplies and activates: by GateUpExperts, or by its parts.
std::vector<float> RunGateUp(Ops& ops, const GroupedCase& c, const std::vector<int32_t>& tokens,
                             Activation activation, bool together) {
  const auto stack = ops.PackStack(c.members);
  CHECK_MSG(stack.ok(), stack.status().ToString());
  OpRunner run(ops);
  const int64_t num_rows = c.offsets.back();
  const DType type = (*stack)->activation();
  const Tensor source = run.Rounded(c.x, type, {static_cast<int64_t>(c.x.size()) / c.cols, c.cols});
  const GatherRows gather = {
      .source = source, .rows = run.Ints(tokens), .out = run.Output({num_rows, c.cols}, type)};
  const GroupedLinear linear = {.x = gather.out,
                                .weights = stack->get(),
                                .offsets = run.Ints(c.offsets),
                                .bias = run.Floats(c.bias, {c.experts(), c.rows}),
                                .out = run.Output({num_rows, c.rows}, (*stack)->output())};
  const GatedActivation gate = {.gate_up = linear.out,
                                .activation = activation,
                                .out = run.Output({num_rows, c.rows / 2}, (*stack)->output()),
                                .limit = 7,
                                .alpha = 1.702f};
  if (together) {
    run.Run(GateUpExperts{.gather = gather,
                          .rows = RowsOf(run, tokens, source.rows()),
                          .linear = linear,
                          .gate = gate});
  } else {
    run.Run(gather);
    run.Run(linear);
    run.Run(gate);
  }
  return run.Download(gate.out);
}

// A backend may fuse the parts, but for some shapes and activations only.
TEST_P(GroupedOps, GateUpExpertsHasTheBitsOfItsParts) {
  std::mt19937_64 random(8);
  const auto reference = MakeReferenceOps();
  WorstError worst(fmt::format("{} gate_up_experts", ops_->name()));
  struct Routing {
    int32_t num_tokens;
    std::vector<int32_t> offsets;
  };
  // One token, with three experts; few; groups that take larger tiles.
  const Routing routings[] = {{1, {0, 0, 1, 1, 2, 3, 3}},
                              {5, {0, 0, 1, 1, 4, 10, 10}},
                              {75, {0, 2, 133, 150}},
                              {102, {0, 2, 200, 204}}};
  for (const Routing& routing : routings) {
    for (const auto& shape : {std::pair<int64_t, int64_t>{40, 136}, {37, 64}}) {
      GroupedCase c = MakeGrouped(random, routing.offsets, 2 * shape.first, shape.second,
                                  WeightUse::kInnerLinear);
      std::vector<int32_t> tokens;
      for (int32_t r = 0; r < routing.offsets.back(); ++r) {
        tokens.push_back(r * 7 % routing.num_tokens);
      }
      c.x.resize(
          static_cast<size_t>(std::min(routing.num_tokens, routing.offsets.back()) * c.cols));
      for (const Activation activation :
           {Activation::kSilu, Activation::kGeluTanh, Activation::kClampedSwiglu}) {
        const std::vector<float> together = RunGateUp(*ops_, c, tokens, activation, true);
        EXPECT_TRUE(SameBits(together, RunGateUp(*ops_, c, tokens, activation, false)))
            << shape.first << ", activation " << static_cast<int>(activation);
        const std::vector<float> expected = RunGateUp(*reference, c, tokens, activation, true);
        for (size_t i = 0; i < together.size(); ++i) {
          // Gate and up are below 64, and each rounded to bf16; so is the result.
          worst.Compare(
              together[i], expected[i],
              0x1p-6 * std::abs(expected[i]) + (GetParam().inner == DType::kBF16 ? 0.5 : 1e-2),
              [&] { return fmt::format("{}, {}", shape.first, i); });
        }
      }
    }
  }
}

TEST_P(MoeOps, StacksOfDifferentShapesAreRefused) {
  const auto stack = ops_->PackStack(std::vector<WeightSpec>{
      {.parts = {MemorySource::Random("first", DType::kBF16, {3, 8}, 1)}},
      {.parts = {MemorySource::Random("second", DType::kBF16, {4, 8}, 2)}}});
  ASSERT_FALSE(stack.ok());
  EXPECT_NE(stack.status().ToString().find("second"), std::string::npos);
}

TEST_P(MoeOps, CombinesInTheOrderOfTheChoice) {
  std::mt19937_64 random(3);
  const auto reference = MakeReferenceOps();
  WorstError worst(fmt::format("{} combine_experts", ops_->name()));
  for (const int64_t num_tokens : {0, 1, 9, 530}) {
    const int64_t top_k = num_tokens == 9 ? 11 : 3;
    for (const int64_t cols : {1, 67, 576}) {
      const std::vector<float> x = RandomFloats(random, num_tokens * top_k * cols);
      const std::vector<float> weights = RandomFloats(random, num_tokens * top_k);
      const std::vector<float> shared =
          RoundTo(DType::kBF16, RandomFloats(random, num_tokens * cols));
      const std::vector<float> routers = RandomFloats(random, num_tokens);
      std::vector<int32_t> rows(static_cast<size_t>(num_tokens * top_k));
      std::iota(rows.begin(), rows.end(), 0);
      std::shuffle(rows.begin(), rows.end(), random);
      for (const int kind : {0, 1, 2, 3}) {  // no shared expert; one; a gated one, of inner type
        const auto combine = [&](Ops& ops, DType type) {
          OpRunner run(ops);
          const CombineExperts op = {
              .x = run.Floats(x, {num_tokens * top_k, cols}),
              .rows = run.Upload(rows.data(), DType::kI32, {num_tokens, top_k}),
              .weights = run.Floats(weights, {num_tokens, top_k}),
              .shared =
                  kind > 0 ? run.Rounded(shared, kind == 3 ? type : DType::kF32, {num_tokens, cols})
                           : Tensor(),
              .shared_gate = kind > 1 ? run.Floats(routers, {num_tokens, 1}) : Tensor(),
              .out = run.Output({num_tokens, cols})};
          run.Run(op);
          return run.Download(op.out);
        };
        // Up to 12 roundings of sums below 16.
        worst.Compare(combine(*ops_, GetParam().inner), combine(*reference, DType::kF32),
                      12 * 16 * kUnit, fmt::format("{}x{}, {}", num_tokens, cols, kind));
      }
    }
  }
}

}  // namespace
}  // namespace tokamak
