// The operations of MoE layers on every backend that has them.
#include "ops/moe.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

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
      const std::vector<float> logits = RandomFloats(random, router.num_experts * 70, 3.0f);
      const std::vector<float> bias =
          with_bias ? RandomFloats(random, router.num_experts) : std::vector<float>();
      const Route route = RunRoute(*ops_, router, logits, bias);
      for (size_t t = 0; t < 70; ++t) {
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
      ASSERT_EQ(route.offsets.back(), static_cast<int32_t>(70 * top_k));
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

TEST_P(MoeOps, EqualScoresGoToTheLowerExpertAndNanStaysInItsToken) {
  const RouterConfig router = {.num_experts = 4, .top_k = 2, .normalize = true};
  const Route route = RunRoute(*ops_, router, {1, 2, 2, 2, NAN, NAN, NAN, NAN, 5, NAN, 0, 1}, {});
  EXPECT_EQ((std::vector<int32_t>(route.experts.begin(), route.experts.begin() + 4)),
            (std::vector<int32_t>{1, 2, 0, 1}));
  EXPECT_EQ(route.weights[0], 0.5f);
  EXPECT_EQ(route.weights[1], 0.5f);
  for (size_t i = 2; i < 6; ++i) EXPECT_TRUE(std::isnan(route.weights[i])) << i;
  EXPECT_EQ(route.offsets.back(), 6);
}

// Each expert's rows equal its Linear's bit for bit; other tests compare Linear with the reference.
TEST_P(MoeOps, GroupedLinearEqualsEachExpertsLinear) {
  std::mt19937_64 random(2);
  constexpr int64_t kRows = 75, kCols = 256;
  const std::vector<int32_t> offsets = {0, 0, 1, 1, 4, 40, 57, 57};  // 7 experts
  const int64_t num_rows = offsets.back();
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kQ4_1, DType::kQ4_K, DType::kQ6_K}) {
    for (const bool with_bias : {false, true}) {
      std::vector<std::unique_ptr<PackedWeight>> weights;
      std::vector<const PackedWeight*> pointers;
      for (size_t e = 0; e + 1 < offsets.size(); ++e) {
        auto weight = ops_->PackWeight(
            {.parts = {MemorySource::Random("a", dtype, {kRows - 20, kCols}, random()),
                       MemorySource::Random("b", dtype, {20, kCols}, random())}});
        ASSERT_TRUE(weight.ok());
        pointers.push_back(weight->get());
        weights.push_back(*std::move(weight));
      }
      const std::vector<float> values = RandomFloats(random, num_rows * kCols);
      const auto experts = static_cast<int64_t>(pointers.size());
      const std::vector<float> bias = RandomFloats(random, experts * kRows);
      OpRunner run(*ops_);
      const Tensor x = run.Rounded(values, pointers[0]->activation(), {num_rows, kCols});
      const Tensor biases = with_bias ? run.Floats(bias, {experts, kRows}) : Tensor();
      const Tensor out = run.Output({num_rows, kRows});
      run.Run(GroupedLinear{
          .x = x, .weights = pointers, .offsets = run.Ints(offsets), .bias = biases, .out = out});
      const std::vector<float> actual = run.Download(out);
      for (int64_t e = 0; e < experts; ++e) {
        const int64_t begin = offsets[static_cast<size_t>(e)];
        const int64_t end = offsets[static_cast<size_t>(e + 1)];
        if (begin == end) continue;
        const Tensor alone = run.Output({end - begin, kRows});
        run.Run(Linear{.x = x.Rows(begin, end),
                       .weight = pointers[static_cast<size_t>(e)],
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

TEST_P(MoeOps, CombinesInTheOrderOfTheChoice) {
  std::mt19937_64 random(3);
  const auto reference = MakeReferenceOps();
  WorstError worst(fmt::format("{} combine_experts", ops_->name()));
  constexpr int64_t kTopK = 3;
  for (const int64_t num_tokens : {0, 1, 9, 130}) {
    for (const int64_t cols : {1, 67, 576}) {
      const std::vector<float> x = RandomFloats(random, num_tokens * kTopK * cols);
      const std::vector<float> weights = RandomFloats(random, num_tokens * kTopK);
      const std::vector<float> shared = RandomFloats(random, num_tokens * cols);
      const std::vector<float> routers = RandomFloats(random, num_tokens);
      std::vector<int32_t> rows(static_cast<size_t>(num_tokens * kTopK));
      std::iota(rows.begin(), rows.end(), 0);
      std::shuffle(rows.begin(), rows.end(), random);
      for (const int kind : {0, 1, 2}) {  // no shared expert; one; a gated one
        const auto combine = [&](Ops& ops) {
          OpRunner run(ops);
          const CombineExperts op = {
              .x = run.Floats(x, {num_tokens * kTopK, cols}),
              .rows = run.Upload(rows.data(), DType::kI32, {num_tokens, kTopK}),
              .weights = run.Floats(weights, {num_tokens, kTopK}),
              .shared = kind > 0 ? run.Floats(shared, {num_tokens, cols}) : Tensor(),
              .shared_gate = kind > 1 ? run.Floats(routers, {num_tokens, 1}) : Tensor(),
              .out = run.Output({num_tokens, cols})};
          run.Run(op);
          return run.Download(op.out);
        };
        // Up to 8 roundings of sums below 16.
        worst.Compare(combine(*ops_), combine(*reference), 8 * 16 * kUnit,
                      fmt::format("{}x{}, {}", num_tokens, cols, kind));
      }
    }
  }
}

}  // namespace
}  // namespace tokamak
