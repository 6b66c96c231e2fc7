#include "runner/runner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "base/gumbel.h"
#include "base/option_names.h"
#include "models/testing/golden.h"
#include "ops/cpu/cpu_ops.h"
#include "ops/cuda/cuda_ops.h"
#include "runner/testing/driver.h"
#include "runner/testing/queued_ops.h"
#include "runner/testing/toy_model.h"

namespace tokamak::testing {
namespace {

constexpr RunnerMemory kMemory = {
    .arena_bytes = 32 << 20, .num_device_blocks = 3000, .num_host_blocks = 3000};

std::unique_ptr<Ops> MakeCpu(const std::string& isa = "auto", int threads = 1) {
  auto ops = MakeCpuOps({.threads = threads, .isa = isa});
  CHECK_MSG(ops.ok(), ops.status().ToString());
  return *std::move(ops);
}

// The ISAs that this machine supports.
std::vector<std::string> Isas() {
  std::vector<std::string> names;
  for (const std::string& isa : CpuIsaNames()) {
    if (MakeCpuOps({.threads = 1, .isa = isa}).ok()) names.push_back(isa);
  }
  return names;
}

std::unique_ptr<Runner> MakeRunner(const Model& model, Ops& ops, RunnerShape shape = {}) {
  if (shape.max_context == 0) shape.max_context = 200;
  auto runner = Runner::Create(model, ops, shape, kMemory);
  CHECK_MSG(runner.ok(), runner.status().ToString());
  return *std::move(runner);
}

std::vector<TokenId> RandomTokens(size_t count, int32_t vocab, std::mt19937_64& random) {
  std::vector<TokenId> tokens(count);
  for (TokenId& token : tokens)
    token = static_cast<TokenId>(random() % static_cast<uint64_t>(vocab));
  return tokens;
}

SamplingParams RandomSampling(int32_t vocab, std::mt19937_64& random) {
  const auto chance = [&random](int one_in) {
    return random() % static_cast<uint64_t>(one_in) == 0;
  };
  SamplingParams spec{.seed = random()};
  if (chance(3)) spec.temperature = 0;
  if (chance(3)) spec.top_k = 1 + static_cast<int32_t>(random() % 20);
  if (chance(3)) spec.top_p = 0.9f;
  if (chance(4)) spec.min_p = 0.05f;
  if (chance(4)) spec.typical_p = 0.9f;
  if (chance(3)) spec.repetition_penalty = 1.2f;
  if (chance(3)) spec.frequency_penalty = 0.5f;
  if (chance(4)) spec.presence_penalty = -0.5f;
  if (chance(4))
    spec.logit_bias = {{static_cast<TokenId>(random() % static_cast<uint64_t>(vocab)), 2.0f}};
  if (chance(4)) {
    spec.min_tokens = 3;
    spec.stop_token_ids = {1, 2};
  }
  if (chance(2)) spec.logprobs = static_cast<int32_t>(random() % 6);
  if (chance(5)) spec.prompt_logprobs = static_cast<int32_t>(random() % 3);
  return spec;
}

// Random requests, some with long common prefixes, some with masks.
std::vector<DriverRequest> RandomRequests(int count, int32_t vocab, uint64_t seed) {
  std::mt19937_64 random(seed);
  const std::vector<TokenId> prefix = RandomTokens(60, vocab, random);
  std::vector<DriverRequest> requests;
  for (int i = 0; i < count; ++i) {
    DriverRequest request;
    if (random() % 2 == 0)
      request.prompt.assign(prefix.begin(), prefix.begin() + 1 + random() % 60);
    const auto tail = RandomTokens(1 + random() % 50, vocab, random);
    request.prompt.insert(request.prompt.end(), tail.begin(), tail.end());
    request.sampling = RandomSampling(vocab, random);
    request.num_generated = static_cast<int32_t>(random() % 24);
    if (random() % 3 == 0) {
      request.allowed.assign((static_cast<size_t>(vocab) + 31) / 32, 0);
      for (const TokenId token : RandomTokens(static_cast<size_t>(vocab) / 2, vocab, random)) {
        request.allowed[static_cast<size_t>(token / 32)] |= uint32_t{1} << token % 32;
      }
    }
    requests.push_back(std::move(request));
  }
  return requests;
}

void ExpectEqual(const std::vector<DriverResult>& results,
                 const std::vector<DriverResult>& expected) {
  ASSERT_EQ(results.size(), expected.size());
  for (size_t i = 0; i < results.size(); ++i) {
    EXPECT_EQ(results[i].tokens, expected[i].tokens) << "request " << i;
    EXPECT_EQ(results[i].logprobs, expected[i].logprobs) << "request " << i;
    EXPECT_EQ(results[i].prompt_logprobs, expected[i].prompt_logprobs) << "request " << i;
  }
}

// Runs the requests one after another, each prompt in one chunk.
std::vector<DriverResult> Alone(const Model& model, Ops& ops,
                                const std::vector<DriverRequest>& requests) {
  const auto runner = MakeRunner(model, ops);
  return Drive(*runner, requests, {.max_concurrent = 1});
}

// Each token goes to top_k experts per MoE layer, and to the same ones in any step.
TEST(Runner, ExpertLoadsCountTheTokensOfAStep) {
  const auto ops = MakeCpu();
  const auto model = LoadOrDie(GoldenPath("qwen3_moe_odd.gguf"), *ops);
  const int32_t moe_layers = model->spec().num_moe_layers, experts = model->spec().max_experts;
  ASSERT_GT(moe_layers, 0);
  const TinyGolden golden = ReadTinyGolden("qwen3_moe_odd");
  const auto loads_of = [&](int32_t chunk, bool wanted) {
    const auto runner = MakeRunner(*model, *ops, {.depth = 2, .expert_loads = wanted});
    std::vector<int32_t> loads;
    const auto length = static_cast<int32_t>(golden.greedy.prompt.size());
    for (int32_t done = 0, step = 0; done < length; ++step) {
      const int32_t count = std::min(chunk, length - done);
      StepInput input = {.number = static_cast<uint64_t>(step)};
      if (step == 0) {
        input.admit.push_back(
            {.slot = 0, .tokens = golden.greedy.prompt, .num_prompt_tokens = length});
        input.append.push_back({.slot = 0, .group = 0, .blocks = {0, 1, 2, 3}});
      }
      input.rows.push_back({.slot = 0, .num_tokens = count, .sample = false});
      CHECK(runner->Submit(input).ok() && runner->Sample(input.number).ok());
      const Result<StepOutput> output = runner->Wait(input.number);
      CHECK_MSG(output.ok(), output.status().ToString());
      loads.resize(output->expert_loads.size());
      int32_t sum = 0;
      for (size_t i = 0; i < loads.size(); ++i) {
        loads[i] += output->expert_loads[i];
        sum += output->expert_loads[i];
      }
      EXPECT_EQ(sum % (moe_layers * count), 0);  // top_k per token and MoE layer
      done += count;
    }
    return loads;
  };
  const std::vector<int32_t> loads = loads_of(1 << 20, true);
  EXPECT_EQ(loads.size(), static_cast<size_t>(moe_layers * experts));
  EXPECT_GT(*std::max_element(loads.begin(), loads.end()), 0);
  EXPECT_EQ(loads_of(7, true), loads);
  EXPECT_TRUE(loads_of(7, false).empty());
}

TEST(Runner, GreedyTokensEqualTheReference) {
  const auto ops = MakeCpu();
  for (const std::string name : {"llama_odd", "llama_tied", "llama_yarn"}) {
    const auto model = LoadOrDie(GoldenPath(name + ".gguf"), *ops);
    const TinyGolden golden = ReadTinyGolden(name);
    const auto runner = MakeRunner(*model, *ops);
    const auto results =
        Drive(*runner,
              {{.prompt = golden.greedy.prompt,
                .sampling = {.temperature = 0},
                .num_generated = static_cast<int32_t>(golden.greedy.tokens.size())}},
              {.chunk = 7});
    EXPECT_EQ(results[0].tokens, golden.greedy.tokens) << name;
  }
}

struct InvarianceCase {
  std::string isa;  // or "cuda", or "cuda_precise"
  int threads = 1;
  int depth = 1;
  DType weights = DType::kF32;
  DType kv = DType::kF32;
  // For asynchronous backends: CUDA, or one that queues the CPU's work.
  std::optional<CudaGraphs> cuda_graphs = {};
  // One schedule of few requests, for an emulated GPU.
  bool brief = false;
  std::string golden = {};  // the model; empty: the toy model

  bool IsCuda() const { return isa.starts_with("cuda"); }
};

// Null, with the reason in *why, if the GPU is not available.
std::unique_ptr<Ops> MakeBackend(const InvarianceCase& c, int threads, std::string* why) {
  if (!c.IsCuda()) return MakeCpu(c.isa, threads);
  Result<std::unique_ptr<Ops>> cuda =
      MakeCudaOps({.precise = c.isa == "cuda_precise", .kernels = KernelChoice::kNew});
  if (cuda.ok()) return *std::move(cuda);
  *why = cuda.status().ToString();
  return nullptr;
}

void PrintTo(const InvarianceCase& c, std::ostream* out) {
  *out << c.isa << "_t" << c.threads << "_d" << c.depth << "_" << Name(c.weights) << "_"
       << Name(c.kv) << (c.cuda_graphs ? "_async_graphs_" : "")
       << (c.cuda_graphs ? Name(*c.cuda_graphs) : "") << (c.golden.empty() ? "" : "_") << c.golden
       << (c.brief ? "_brief" : "");
}

std::unique_ptr<Model> MakeModel(const InvarianceCase& c, Ops& ops) {
  if (!c.golden.empty()) return LoadOrDie(GoldenPath("hf/" + c.golden), ops);
  return MakeToyModel(ops, {.dtype = c.weights});
}

class RunnerInvariance : public ::testing::TestWithParam<InvarianceCase> {};

TEST_P(RunnerInvariance, AnswersDoNotDependOnTheSchedule) {
  const InvarianceCase& c = GetParam();
  std::string why;
  const auto lone_ops = MakeBackend(c, 1, &why);
  auto ops = MakeBackend(c, c.threads, &why);
  if (ops == nullptr) GTEST_SKIP() << "no CUDA backend here: " << why;
  if (c.cuda_graphs && !c.IsCuda()) ops = MakeQueuedOps(std::move(ops), 7);
  const auto lone_model = MakeModel(c, *lone_ops), model = MakeModel(c, *ops);
  const auto requests =
      RandomRequests(c.brief ? 10 : 40, model->spec().vocab_size, c.brief ? 1 : 99);
  const RunnerShape shape = {.max_seqs = 12,
                             .max_step_tokens = 64,
                             .max_step_drafts = 16,
                             .max_context = 200,
                             .block_size = 4,
                             .kv_dtype = c.kv,
                             .depth = c.depth,
                             .cuda_graphs = c.cuda_graphs.value_or(CudaGraphs::kAuto)};
  RunnerShape lone_shape = shape;
  lone_shape.max_step_tokens = 200;
  lone_shape.depth = 1;
  lone_shape.cuda_graphs = CudaGraphs::kOff;
  const auto lone_runner = MakeRunner(*lone_model, *lone_ops, lone_shape);
  const auto expected = Drive(*lone_runner, requests, {.max_concurrent = 1});
  const auto runner = MakeRunner(*model, *ops, shape);
  DriverCounts total;
  for (uint64_t seed = c.brief ? 4 : 1; seed <= 4; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    DriverCounts counts;
    ExpectEqual(Drive(*runner, requests,
                      {.seed = seed,
                       .max_concurrent = c.brief ? 4 : static_cast<int32_t>(3 * seed),
                       .chunk = 32,
                       .random_chunks = seed % 2 == 0,
                       .recompute = 0.1,
                       .swap = 0.2,
                       .share = 0.7,
                       .drafts = &expected},
                      &counts),
                expected);
    total.recomputed += counts.recomputed;
    total.swapped += counts.swapped;
    total.shared += counts.shared;
    total.mixed += counts.mixed;
    total.accepted += counts.accepted;
    total.refused += counts.refused;
    total.masked += counts.masked;
  }
  // Checks that the schedules contained everything to which results must be invariant.
  const int64_t few = c.brief ? 0 : 10;
  EXPECT_GT(total.recomputed, few);
  EXPECT_GT(total.mixed, few);
  if (runner->cache().sequence_state) return;
  EXPECT_GT(total.swapped, few);
  EXPECT_GT(total.shared, few);
  EXPECT_GT(total.accepted, few);
  EXPECT_GT(total.refused, few);
  EXPECT_GT(total.masked, few);
}

std::vector<InvarianceCase> InvarianceCases() {
  std::vector<InvarianceCase> cases;
  for (const std::string& isa : Isas()) {
    cases.push_back({.isa = isa});
    cases.push_back({.isa = isa, .threads = 2, .depth = 2, .kv = DType::kF16});
    cases.push_back({.isa = isa, .threads = 2, .depth = 4, .weights = DType::kQ4_1});
    cases.push_back({.isa = isa, .threads = 2, .depth = 2, .kv = DType::kF8E4M3});
    cases.push_back({.isa = isa, .depth = 3, .weights = DType::kQ8_0, .kv = DType::kBF16});
  }
  for (const int depth : {1, 2, 4}) {
    cases.push_back({.isa = "auto", .depth = depth, .cuda_graphs = CudaGraphs::kOff});
    cases.push_back({.isa = "auto", .depth = depth, .cuda_graphs = CudaGraphs::kOn});
    cases.push_back(
        {.isa = "cuda", .depth = depth, .kv = DType::kBF16, .cuda_graphs = CudaGraphs::kOff});
    cases.push_back(
        {.isa = "cuda", .depth = depth, .kv = DType::kBF16, .cuda_graphs = CudaGraphs::kOn});
  }
  for (const bool brief : {false, true}) {
    cases.push_back(
        {.isa = "cuda_precise", .depth = 2, .cuda_graphs = CudaGraphs::kOn, .brief = brief});
  }
  for (const bool brief : {false, true}) {
    cases.push_back({.isa = "cuda",
                     .depth = 2,
                     .kv = DType::kF8E4M3,
                     .cuda_graphs = CudaGraphs::kOn,
                     .brief = brief});
  }
  // One with experts, and one that keeps a state per sequence.
  for (const std::string golden : {"", "mixtral_128", "qwen35_128"}) {
    cases.push_back({.isa = "cuda",
                     .depth = 2,
                     .kv = DType::kBF16,
                     .cuda_graphs = CudaGraphs::kOn,
                     .brief = true,
                     .golden = golden});
  }
  for (const CudaGraphs graphs : {CudaGraphs::kOff, CudaGraphs::kOn}) {
    cases.push_back({.isa = "auto", .depth = 2, .cuda_graphs = graphs, .golden = "qwen35_odd"});
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Cpu, RunnerInvariance, ::testing::ValuesIn(InvarianceCases()),
                         ::testing::PrintToStringParamName());

// Without an effect of the window the tests above would prove little.
TEST(Runner, TheToyModelAttendsOnlyToItsWindow) {
  const auto ops = MakeCpu();
  const auto requests = RandomRequests(8, 96, 5);
  const auto narrow = MakeToyModel(*ops, {.window = 11});
  const auto wide = MakeToyModel(*ops, {.window = 250});
  EXPECT_NE(Alone(*narrow, *ops, requests), Alone(*wide, *ops, requests));
}

TEST(Runner, PromptLogprobsAreThoseOfADirectRun) {
  const auto ops = MakeCpu();
  const auto model = LoadOrDie(GoldenPath("llama_odd.gguf"), *ops);
  std::mt19937_64 random(3);
  // More rows than are scored at once.
  const std::vector<TokenId> prompt = RandomTokens(150, model->spec().vocab_size, random);
  Harness harness(*model, *ops);
  const auto logits = harness.Run(prompt, 150);
  for (const int32_t chunk : {1000, 100, 13}) {
    const auto runner = MakeRunner(*model, *ops);
    const auto results = Drive(*runner,
                               {{.prompt = prompt,
                                 .sampling = {.temperature = 0, .prompt_logprobs = 3},
                                 .num_generated = 1}},
                               {.chunk = chunk});
    ASSERT_EQ(results[0].prompt_logprobs.size(), prompt.size() - 1);
    for (const auto& [position, got] : results[0].prompt_logprobs) {
      const auto p = static_cast<size_t>(position);
      EXPECT_EQ(got.token.token_id, prompt[p]);
      EXPECT_NEAR(got.token.logprob, Logprob(logits[p - 1], prompt[p]), 3e-6);
      ASSERT_EQ(got.top.size(), 3u);
      const auto best = std::max_element(logits[p - 1].begin(), logits[p - 1].end());
      EXPECT_EQ(got.top[0].token_id, best - logits[p - 1].begin());
      EXPECT_NEAR(got.top[2].logprob, Logprob(logits[p - 1], got.top[2].token_id), 3e-6);
    }
  }
}

// Checks that each token is the Gumbel-max of its logits, computed here.
TEST(Runner, DrawsAreKeyedBySeedChoiceAndPosition) {
  const auto ops = MakeCpu();
  const auto model = MakeToyModel(*ops);
  const std::vector<TokenId> prompt = {4, 8, 15, 16, 23, 42};
  const auto runner = MakeRunner(*model, *ops);
  const auto results =
      Drive(*runner,
            {{.prompt = prompt, .sampling = {.seed = 77}, .num_generated = 12, .choice = 3}}, {});
  std::vector<TokenId> tokens = prompt;
  tokens.insert(tokens.end(), results[0].tokens.begin(), results[0].tokens.end());
  Harness harness(*model, *ops);
  const auto logits = harness.Run(tokens, static_cast<int32_t>(tokens.size()));
  for (size_t p = prompt.size(); p < tokens.size(); ++p) {
    const DrawKey key{.seed = 77, .choice = 3, .position = static_cast<int32_t>(p)};
    std::vector<double> scores;
    for (uint32_t t = 0; t < logits[p - 1].size(); ++t) {
      scores.push_back(logits[p - 1][t] + Gumbel(DrawWords(key, t / 4)[t % 4]));
    }
    EXPECT_EQ(tokens[p], std::max_element(scores.begin(), scores.end()) - scores.begin());
  }
}

TEST(Runner, ChoicesDifferAndDoNotDependOnTheBatch) {
  const auto ops = MakeCpu();
  const auto model = MakeToyModel(*ops);
  std::mt19937_64 random(4);
  std::vector<DriverRequest> requests;
  const std::vector<TokenId> prompt = RandomTokens(40, 96, random);
  for (int32_t choice = 0; choice < 6; ++choice) {
    requests.push_back({.prompt = prompt,
                        .sampling = {.temperature = 3.0f, .seed = 8},
                        .num_generated = 16,
                        .choice = choice});
  }
  const auto expected = Alone(*model, *ops, requests);
  const auto runner = MakeRunner(*model, *ops);
  DriverCounts counts;
  ExpectEqual(Drive(*runner, requests, {.max_concurrent = 6, .share = 1.0}, &counts), expected);
  for (size_t i = 0; i < 6; ++i) {
    for (size_t j = 0; j < i; ++j) EXPECT_NE(expected[i].tokens, expected[j].tokens);
  }
}

TEST(Runner, ARowThatIsNotFiniteChangesNoOther) {
  const auto ops = MakeCpu();
  const auto model = MakeToyModel(*ops, {.poison = 17});
  auto requests = RandomRequests(12, 96, 6);
  for (DriverRequest& request : requests) {
    std::replace(request.prompt.begin(), request.prompt.end(), 17, 18);
    request.sampling.logit_bias = {{17, -100.0f}};
    request.num_generated += 2;
  }
  const auto expected = Alone(*model, *ops, requests);
  for (const DriverResult& result : expected) EXPECT_FALSE(result.failed);
  auto poisoned = requests;
  for (size_t i = 0; i < poisoned.size(); i += 3)
    poisoned[i].prompt[poisoned[i].prompt.size() / 2] = 17;
  for (const int depth : {1, 3}) {
    const auto runner = MakeRunner(*model, *ops, {.max_seqs = 12, .depth = depth});
    const auto results =
        Drive(*runner, poisoned, {.max_concurrent = 12, .chunk = 20, .random_chunks = true});
    for (size_t i = 0; i < results.size(); ++i) {
      if (i % 3 == 0) {
        EXPECT_TRUE(results[i].failed) << i;
        EXPECT_TRUE(results[i].tokens.empty()) << i;
      } else {
        EXPECT_EQ(results[i], expected[i]) << i;
      }
    }
  }
}

// Their tables exceed the staging memory, which is reused before the step is submitted.
TEST(Runner, ManyLongPrefixesAreAdmittedAtOnce) {
  constexpr int32_t kPrefix = 196, kBlockSize = 4, kWhole = kPrefix / kBlockSize, kSlots = 16;
  const auto ops = MakeQueuedOps(MakeCpu(), 3);
  const auto model = MakeToyModel(*ops);
  const RunnerShape shape = {
      .max_seqs = kSlots, .max_step_tokens = kPrefix, .block_size = kBlockSize, .depth = 2};
  std::mt19937_64 random(5);
  const std::vector<TokenId> prefix = RandomTokens(kPrefix, 96, random);
  const auto admit = [&](SequenceSlotId slot, StepInput* step) {
    AdmitSequence& admitted = step->admit.emplace_back();
    admitted.slot = slot;
    admitted.tokens = prefix;
    admitted.tokens.push_back(slot);
    admitted.num_prompt_tokens = kPrefix + 1;
    admitted.num_computed = kPrefix;
    admitted.sampling = {.temperature = 3, .seed = 1};
    for (int32_t group = 0; group < 2; ++group) {
      AppendBlocks append{.slot = slot, .group = group};
      for (int32_t i = 0; i < kWhole; ++i) append.blocks.push_back(2 * i + group);
      append.blocks.push_back(1000 + 2 * slot + group);
      step->append.push_back(std::move(append));
    }
    step->rows.push_back({.slot = slot, .num_tokens = 1, .sample = true});
  };
  // Returns the tokens by slot if each step admits `at_once` sequences.
  const auto run = [&](int32_t at_once) {
    const auto runner = MakeRunner(*model, *ops, shape);
    std::vector<StepInput> steps(1);
    admit(0, &steps[0]);
    steps[0].admit[0].num_computed = 0;
    steps[0].admit[0].tokens.pop_back();
    steps[0].admit[0].num_prompt_tokens = kPrefix;
    steps[0].rows[0] = {.slot = 0, .num_tokens = kPrefix};
    for (SequenceSlotId slot = 1; slot < kSlots; ++slot) {
      if ((slot - 1) % at_once == 0) steps.push_back({.number = steps.size()});
      admit(slot, &steps.back());
    }
    std::vector<TokenId> tokens;
    for (size_t n = 0; n <= steps.size(); ++n) {
      if (n < steps.size()) {
        CHECK(runner->Submit(steps[n]).ok() && runner->Sample(n).ok());
      }
      if (n == 0) continue;
      const Result<StepOutput> output = runner->Wait(n - 1);
      CHECK(output.ok());
      for (const RowOutput& row : output->rows) {
        tokens.insert(tokens.end(), row.tokens.begin(), row.tokens.end());
      }
    }
    return tokens;
  };
  const nn::CacheLayout& cache = model->spec().cache;
  RunnerShape with_context = shape;
  with_context.max_context = 200;
  ASSERT_LT(MakeStepShape(with_context, cache).max_updates, (kSlots - 1) * (kWhole + 1));
  const std::vector<TokenId> expected = run(1);
  EXPECT_EQ(expected.size(), static_cast<size_t>(kSlots - 1));
  EXPECT_EQ(run(kSlots), expected);
}

}  // namespace
}  // namespace tokamak::testing
