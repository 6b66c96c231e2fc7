// Tests the public Engine on a tiny model.
#include "tokamak/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <future>
#include <map>
#include <numeric>
#include <random>
#include <thread>

#include "base/file.h"
#include "base/mutex.h"
#include "local/replay_file.h"
#include "local/testing/load_engine.h"

namespace tokamak {
namespace {

using testing::HasSubstr;

Request Ids(std::vector<int32_t> ids, int32_t max_tokens) {
  Request request;
  request.token_ids = std::move(ids);
  request.sampling.temperature = 0;
  request.sampling.max_tokens = max_tokens;
  request.sampling.ignore_eos = true;
  return request;
}

TEST(Engine, DescribesTheLoadedModel) {
  const auto engine = Load();
  const ModelInfo& model = engine->model();
  EXPECT_EQ(model.name, "llama_tied");
  EXPECT_EQ(model.architecture, "LlamaForCausalLM");
  EXPECT_EQ(model.vocab_size, 320);
  EXPECT_EQ(model.max_context, 512);
  EXPECT_EQ(model.device, "cpu");
  EXPECT_THAT(model.backend, HasSubstr("cpu/"));
  EXPECT_EQ(model.threads, 2);
  const int element = model.backend.ends_with("/precise") ? 4 : 2;
  EXPECT_EQ(model.kv_token_bytes, 2 * 2 * 64 * element);  // layers, k and v, head_dim
  EXPECT_EQ(engine->stats().total_blocks, 64);
}

TEST(Engine, LoadErrorsNameTheCause) {
  const auto fails = [](const std::function<void(EngineOptions&)>& spoil, StatusCode code,
                        const std::string& words) {
    EngineOptions options = TinyOptions();
    spoil(options);
    const auto engine = Engine::Load(options);
    ASSERT_FALSE(engine.ok()) << words;
    EXPECT_EQ(engine.status().code(), code) << engine.status().ToString();
    EXPECT_THAT(engine.status().ToString(), HasSubstr(words));
  };
  const auto kInvalid = StatusCode::kInvalidArgument;
  fails([](auto& o) { o.model = "/no/such.gguf"; }, StatusCode::kNotFound, "/no/such.gguf");
  fails([](auto& o) { o.device = "cuda:x"; }, kInvalid, "device: must be");
  fails([](auto& o) { o.cuda_graphs = CudaGraphs::kOn; }, StatusCode::kUnimplemented,
        "cuda_graphs=on");
  fails([](auto& o) { o.steps_in_flight = 5; }, kInvalid, "steps_in_flight: must be");
  fails([](auto& o) { o.draft_tokens = 17; }, kInvalid, "draft_tokens: must be");
  fails([](auto& o) { o.draft_tokens_min = 5; }, kInvalid, "draft_tokens_min: must be in [0, 4]");
  fails([](auto& o) { o.prompt_lookup_min = 0; }, kInvalid,
        "prompt_lookup_min: must be in [1, 16]");
  fails([](auto& o) { o.prompt_lookup_min = 6; }, kInvalid,
        "prompt_lookup_max: must be in [6, 16]");
  fails([](auto& o) { o.speculate = Speculation::kDraft; }, kInvalid,
        "draft_model: must be given with speculate=draft");
  fails([](auto& o) { o.draft_min_probability = 1.5f; }, kInvalid,
        "draft_min_probability: must be");
  fails([](auto& o) { o.sampling.top_p = 1.5f; }, kInvalid, "top_p: must be in (0, 1]");
  fails([](auto& o) { o.device = "tpu"; }, kInvalid, "device: must be");
  fails([](auto& o) { o.isa = "mmx"; }, kInvalid, "mmx");
  fails([](auto& o) { o.threads = -1; }, kInvalid, "threads: must be");
  fails([](auto& o) { o.max_seqs = -1; }, kInvalid, "max_seqs: must be");
  fails([](auto& o) { o.max_batch_tokens = 1; }, kInvalid, "max_batch_tokens: must be");
  fails([](auto& o) { o.block_size = 0; }, kInvalid, "block_size: must be");
  fails([](auto& o) { o.device = "cpu", o.attention = AttentionKernels::kFlashInfer; }, kInvalid,
        "attention=flashinfer: needs an NVIDIA GPU");
  fails([](auto& o) { o.target_itl_ms = -1; }, kInvalid, "target_itl_ms: must be");
  fails([](auto& o) { o.max_context = 513; }, kInvalid, "512");
  fails([](auto& o) { o.num_blocks = 0, o.kv_cache_bytes = 1; }, StatusCode::kResourceExhausted,
        "kv_cache_bytes");
  fails([](auto& o) { o.num_blocks = 0, o.kv_cache_bytes = int64_t{1} << 45; },
        StatusCode::kResourceExhausted, "available");
}

TEST(Engine, RefusesAMissingGpu) {
  EngineOptions options = TinyOptions();
  options.device = "cuda:9999";
  const auto engine = Engine::Load(options);
  ASSERT_FALSE(engine.ok());
  EXPECT_THAT(engine.status().message(), HasSubstr("device=cuda:9999: "));
}

TEST(Engine, ModelLargerThanMemoryIsRefusedBeforeItIsMade) {
  const std::string config = ::testing::TempDir() + "huge.json";
  std::ofstream(config) << R"({
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 128256,
    "hidden_size": 65536, "intermediate_size": 262144, "num_hidden_layers": 500,
    "num_attention_heads": 512, "num_key_value_heads": 64, "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu",
    "tie_word_embeddings": false})";
  EngineOptions options = TinyOptions();
  options.model = "dummy:" + config;
  const auto engine = Engine::Load(options);
  ASSERT_FALSE(engine.ok());
  EXPECT_EQ(engine.status().code(), StatusCode::kResourceExhausted);
  // 500 layers of (q, o: 65536², k, v: 65536 · 8192, mlp: 3 · 65536 · 262144) and two embeddings,
  // two bytes each: 58400064 MiB. 1001 norms of 65536 and RoPE tables of 128 for 4096 positions,
  // four bytes each: 252 MiB.
  EXPECT_THAT(engine.status().message(), HasSubstr("need 58400316 MiB"));
}

TEST(Engine, SubmitNamesTheInvalidField) {
  const auto engine = Load();
  const auto fails = [&](const Request& request, StatusCode code, const std::string& start) {
    const auto id = engine->Submit(request, [](const OutputChunk&) { FAIL() << "it was refused"; });
    ASSERT_FALSE(id.ok()) << start;
    EXPECT_EQ(id.status().code(), code) << id.status().ToString();
    EXPECT_TRUE(id.status().message().starts_with(start)) << id.status().ToString();
  };
  const auto kInvalid = StatusCode::kInvalidArgument;
  fails(Ids({}, 1), kInvalid, "prompt: ");
  fails(Ids({320}, 1), kInvalid, "prompt[0]: ");
  fails(Ids({1, -1}, 1), kInvalid, "prompt[1]: ");
  Request both = Ids({1}, 1);
  both.prompt = "text";
  fails(both, kInvalid, "prompt: ");
  Request empty;
  empty.prompt = "";
  empty.add_special_tokens = false;
  fails(empty, kInvalid, "prompt: ");
  Request hot = Ids({1}, 1);
  hot.sampling.temperature = std::nanf("");
  fails(hot, kInvalid, "temperature: ");
  Request stop = Ids({1}, 1);
  stop.sampling.stop = {"\xFF"};
  fails(stop, kInvalid, "stop");
  fails(Ids(std::vector<int32_t>(512, 1), 1), StatusCode::kResourceExhausted, "prompt: ");
}

TEST(Engine, RefusesRequestsLargerThanTheCache) {
  EngineOptions options = TinyOptions();
  options.num_blocks = 4;  // 16 positions each
  const auto engine = Load(options);
  const auto id = engine->Submit(Ids(std::vector<int32_t>(60, 1), 10), {});
  ASSERT_FALSE(id.ok());
  EXPECT_EQ(id.status().code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(id.status().message()), HasSubstr("4"));
  EXPECT_TRUE(engine->Generate(Ids(std::vector<int32_t>(50, 1), 10)).ok());
}

TEST(Engine, WithoutALimitAnAnswerMayFillTheCache) {
  EngineOptions options = TinyOptions();
  options.num_blocks = 4;  // 16 positions each
  const auto engine = Load(options);
  Request request = Ids({1, 2, 3}, 0);
  request.sampling.max_tokens.reset();
  const auto answer = engine->Generate(request);
  ASSERT_TRUE(answer.ok()) << answer.status().ToString();
  // The last token needs no position.
  EXPECT_EQ(answer->front().usage.completion_tokens, 4 * 16 + 1 - 3);
  EXPECT_EQ(answer->front().finish_reason, FinishReason::kLength);
}

TEST(Engine, AnswersDoNotDependOnOtherRequests) {
  Request request = Ids({5, 6, 7, 8, 9, 10, 11}, 24);
  request.sampling.temperature = 1;
  request.sampling.seed = 42;
  request.sampling.n = 3;
  request.sampling.logprobs = 2;
  const auto alone = Load()->Generate(request).value();
  EngineOptions options = TinyOptions();
  options.max_batch_tokens = 5;
  options.threads = 1;
  options.num_blocks = 12;  // forces preemption
  const auto engine = Load(options);
  std::vector<OutputStream> others;
  for (int i = 0; i < 10; ++i) {
    others.push_back(engine->Stream(Ids(std::vector<int32_t>(5 + i, 3 * i), 40)).value());
  }
  const auto together = engine->Generate(request).value();
  ASSERT_EQ(together.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(together[i].token_ids, alone[i].token_ids);
    ASSERT_EQ(together[i].logprobs.size(), 24u);
    for (size_t t = 0; t < 24; ++t) {
      EXPECT_EQ(together[i].logprobs[t].token.logprob, alone[i].logprobs[t].token.logprob);
    }
    EXPECT_EQ(together[i].seed, 42u);
  }
  for (OutputStream& other : others) {
    int chunks = 0;
    while (other.Next()) ++chunks;
    EXPECT_GT(chunks, 0);
  }
}

TEST(Engine, StreamsUntilEveryChoiceHasEnded) {
  const auto engine = Load();
  Request request = Ids({5, 6, 7}, 9);
  request.sampling.seed = 3;
  request.sampling.n = 3;
  std::vector<std::vector<int32_t>> tokens(3);
  int ended = 0;
  OutputStream stream = engine->Stream(request).value();
  while (const auto chunk = stream.Next()) {
    auto& of_choice = tokens[static_cast<size_t>(chunk->choice)];
    of_choice.insert(of_choice.end(), chunk->token_ids.begin(), chunk->token_ids.end());
    ended += chunk->finish_reason.has_value();
  }
  EXPECT_EQ(ended, 3);
  const auto whole = engine->Generate(request).value();
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(tokens[i], whole[i].token_ids);
  EXPECT_TRUE(stream.WaitFor(0));
  EXPECT_FALSE(stream.Next());
  OutputStream half = engine->Stream(request).value();
  const OutputChunk first = half.Next().value();
  std::vector<OutputChunk> rest = half.Collect();
  ASSERT_EQ(rest.size(), 3u);
  auto& cut = rest[static_cast<size_t>(first.choice)].token_ids;
  cut.insert(cut.begin(), first.token_ids.begin(), first.token_ids.end());
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(rest[i].token_ids, whole[i].token_ids);
  EXPECT_FALSE(half.Next());
  request.sampling.n = 0;
  EXPECT_EQ(engine->Stream(request).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(engine->Generate(request).status().code(), StatusCode::kInvalidArgument);
}

TEST(Engine, ACancelledStreamHasALastChunkAndADroppedOneIsCancelled) {
  const auto engine = Load();
  std::promise<void> gate;
  const std::shared_future<void> open = gate.get_future().share();
  ASSERT_TRUE(engine->Submit(Ids({9}, 1), [open](const OutputChunk&) { open.wait(); }).ok());
  OutputStream cancelled = engine->Stream(Ids({1, 2, 3}, 60)).value();
  cancelled.Cancel();
  EXPECT_TRUE(engine->Stream(Ids({4, 5, 6}, 60)).ok());  // and drops it
  gate.set_value();
  std::optional<OutputChunk> last;
  while (auto chunk = cancelled.Next()) last = std::move(chunk);
  ASSERT_TRUE(last);
  EXPECT_EQ(last->finish_reason, FinishReason::kCancelled);
  engine->Drain(60);
  EXPECT_EQ(engine->stats().ended_requests[static_cast<size_t>(FinishReason::kCancelled)], 2);
}

TEST(Engine, ChoosesSeedsThatRepeatTheAnswer) {
  const auto engine = Load();
  Request request = Ids({1, 2, 3}, 16);
  request.sampling.temperature = 1;
  const OutputChunk first = engine->Generate(request).value()[0];
  const OutputChunk other = engine->Generate(request).value()[0];
  EXPECT_NE(first.seed, other.seed);
  EXPECT_LT(first.seed, uint64_t{1} << 53);  // exact as a JSON number
  request.sampling.seed = first.seed;
  EXPECT_EQ(engine->Generate(request).value()[0].token_ids, first.token_ids);
}

TEST(Engine, ScoresAPromptWithoutGenerating) {
  const auto engine = Load();
  Request request = Ids({1, 2, 3, 4, 5}, 0);
  request.sampling.prompt_logprobs = 3;
  const OutputChunk scored = engine->Generate(request).value()[0];
  EXPECT_TRUE(scored.token_ids.empty());
  EXPECT_EQ(scored.finish_reason, FinishReason::kLength);
  ASSERT_EQ(scored.prompt_logprobs.size(), 4u);
  EXPECT_EQ(scored.prompt_logprobs[3].token.token_id, 5);
  EXPECT_EQ(scored.prompt_logprobs[3].top.size(), 3u);
  EXPECT_EQ(scored.usage.completion_tokens, 0);
}

TEST(Engine, StopStringsEndTheTextBeforeThem) {
  const auto engine = Load();
  Request request;
  request.prompt = "ab";
  request.sampling.temperature = 0;
  request.sampling.max_tokens = 30;
  request.sampling.ignore_eos = true;
  const OutputChunk whole = engine->Generate(request).value()[0];
  ASSERT_GE(whole.text.size(), 10u);
  size_t begin = whole.text.size() / 2;  // the stop string starts at a character
  while ((static_cast<uint8_t>(whole.text[begin]) & 0xC0) == 0x80) ++begin;
  request.sampling.stop = {whole.text.substr(begin)};
  const OutputChunk stopped = engine->Generate(request).value()[0];
  EXPECT_EQ(stopped.finish_reason, FinishReason::kStop);
  EXPECT_EQ(stopped.text, whole.text.substr(0, whole.text.find(request.sampling.stop[0])));
  EXPECT_GT(stopped.tokens_held, 0);
  EXPECT_EQ(whole.tokens_held, 0);
}

TEST(Engine, EndsEveryChoiceExactlyOnceUnderRandomCancellations) {
  EngineOptions options = TinyOptions();
  options.num_blocks = 20;
  const auto engine = Load(options);
  Mutex mutex;
  std::map<std::pair<RequestId, int32_t>, int> ends;
  std::atomic<int64_t> accepted{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 random(t);
      for (int i = 0; i < 40; ++i) {
        Request request = Ids(std::vector<int32_t>(1 + random() % 40, t), 1 + random() % 30);
        request.sampling.n = 1 + random() % 3;
        request.priority = static_cast<int32_t>(random() % 3);
        accepted += request.sampling.n;
        const auto id = engine->Submit(request, [&](const OutputChunk& chunk) {
          MutexLock lock(mutex);
          if (chunk.finish_reason) ++ends[{chunk.request, chunk.choice}];
        });
        ASSERT_TRUE(id.ok()) << id.status().ToString();
        if (random() % 2 == 0) {
          std::this_thread::sleep_for(std::chrono::microseconds(random() % 3000));
          engine->Cancel(*id);
          engine->Cancel(*id + 1000000);
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  engine->Drain(1000);
  MutexLock lock(mutex);
  EXPECT_EQ(static_cast<int64_t>(ends.size()), accepted);
  for (const auto& [choice, count] : ends) EXPECT_EQ(count, 1);
  EXPECT_EQ(engine->stats().used_blocks, 0);
  EXPECT_EQ(engine->stats().running, 0);
}

TEST(Engine, ARequestMayGoWithoutDrafts) {
  EngineOptions options = TinyOptions();
  options.max_batch_tokens = 64;
  const auto engine = Load(options);  // guesses by default
  Request request = Ids({1, 2, 3, 1, 2, 3, 1, 2}, 40);
  request.sampling.temperature = 0;
  request.sampling.ignore_eos = true;
  const OutputChunk with = engine->Generate(request).value()[0];
  request.speculate = false;
  const OutputChunk without = engine->Generate(request).value()[0];
  EXPECT_EQ(without.token_ids, with.token_ids);
  EXPECT_EQ(without.timings.drafts, 0);
  EXPECT_EQ(without.timings.steps, 40);
  engine->Drain(60);
  EXPECT_EQ(engine->stats().drafts, with.timings.drafts);
}

TEST(Engine, CountsThePositionsOfEachExpert) {
  EngineOptions options = TinyOptions();
  options.speculate = Speculation::kOff;  // rejected drafts are positions, too
  options.model = TOKAMAK_SOURCE_DIR "/tests/golden/qwen3_moe_odd.gguf";
  const auto engine = Load(options);
  ASSERT_TRUE(engine->Generate(Ids(std::vector<int32_t>(40, 5), 8)).ok());
  engine->Drain(60);
  const EngineStats stats = engine->stats();
  ASSERT_EQ(stats.expert_positions.size(), 3u);  // layers
  for (const std::vector<int64_t>& layer : stats.expert_positions) {
    ASSERT_EQ(layer.size(), 7u);
    EXPECT_EQ(std::accumulate(layer.begin(), layer.end(), int64_t{0}), 3 * stats.step_tokens);
    EXPECT_GE(ExpertImbalance(layer), 1);
    EXPECT_LE(ExpertImbalance(layer), 7.0 / 3);  // the busiest expert has every position
  }
  EXPECT_EQ(stats.step_tokens, 40 + 7);
  EXPECT_EQ(stats.decode_steps, 7);
  EXPECT_EQ(stats.decode_experts, std::vector<int64_t>(3, 7 * 3));  // 3 experts of each layer
  EXPECT_TRUE(Load()->stats().expert_positions.empty());
}

TEST(Engine, DrainsAndThenRefuses) {
  const auto engine = Load();
  std::atomic<int> cancelled{0};
  ASSERT_TRUE(engine
                  ->Submit(Ids({1}, 500),
                           [&](const OutputChunk& chunk) {
                             cancelled += chunk.finish_reason == FinishReason::kCancelled;
                           })
                  .ok());
  engine->Drain(0);
  EXPECT_LE(cancelled, 1);
  EXPECT_EQ(engine->Submit(Ids({1}, 1), {}).status().code(), StatusCode::kUnavailable);
}

// /health uses seconds_since_progress. The test holds the engine thread in the first callback after
// idling, when the published statistics still say that there is no work.
TEST(Engine, AnEngineThatIsHeldInItsFirstStepMakesNoProgress) {
  const auto engine = Load();
  EXPECT_EQ(engine->stats().seconds_since_progress, 0);
  struct Gate {
    Mutex mutex;
    CondVar changed;
    bool entered GUARDED_BY(mutex) = false;
    bool open GUARDED_BY(mutex) = false;
  } gate;
  const auto hold = [&gate](const OutputChunk&) {
    MutexLock lock(gate.mutex);
    gate.entered = true;
    gate.changed.NotifyAll();
    while (!gate.open) gate.changed.Wait(gate.mutex);
  };
  ASSERT_TRUE(engine->Submit(Ids({1, 2, 3}, 2), hold).ok());
  {
    MutexLock lock(gate.mutex);
    while (!gate.entered) gate.changed.Wait(gate.mutex);
  }
  const double before = engine->stats().seconds_since_progress;
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_GE(engine->stats().seconds_since_progress, before + 0.02);
  {
    MutexLock lock(gate.mutex);
    gate.open = true;
    gate.changed.NotifyAll();
  }
  engine->Drain(60);
  EXPECT_EQ(engine->stats().seconds_since_progress, 0);
}

// Returns the next snapshot, or null if none comes within 20 s.
std::shared_ptr<const EngineSnapshot> SnapshotOf(Engine& engine) {
  const auto promise = std::make_shared<std::promise<std::shared_ptr<const EngineSnapshot>>>();
  auto future = promise->get_future();
  engine.Snapshot([promise](auto snapshot) { promise->set_value(std::move(snapshot)); });
  return future.wait_for(std::chrono::seconds(20)) == std::future_status::ready ? future.get()
                                                                                : nullptr;
}

TEST(Engine, GivesSnapshotsAtMostTenTimesASecond) {
  const auto engine = Load();
  const auto first = SnapshotOf(*engine);
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(first->blocks.map, std::string(64, '.'));
  ASSERT_TRUE(engine->Generate(Ids(std::vector<int32_t>(40, 5), 8)).ok());
  std::shared_ptr<const EngineSnapshot> latest = first;
  while (latest->stats.generated_tokens == 0) {
    const auto next = SnapshotOf(*engine);
    ASSERT_NE(next, nullptr);
    if (next != latest) {
      EXPECT_GE(next->time - latest->time, 0.0999);
    }
    latest = next;
  }
  EXPECT_EQ(latest->stats.generated_tokens, 8);
  EXPECT_EQ(latest->blocks.cached, engine->stats().cached_blocks);
  EXPECT_GT(latest->blocks.cached, 0);
  ASSERT_EQ(latest->requests.size(), 1u);
  EXPECT_EQ(latest->requests[0].output_tokens, 8);
}

TEST(Engine, RefusesRequestsBeyondItsQueue) {
  EngineOptions options = TinyOptions();
  options.max_seqs = 1;
  options.max_queue = 2;
  const auto engine = Load(options);
  int refused = 0;
  for (int i = 0; i < 20; ++i) {
    const auto id = engine->Submit(Ids({1}, 400), [](const OutputChunk&) {});
    if (!id.ok()) {
      EXPECT_EQ(id.status().code(), StatusCode::kUnavailable);
      EXPECT_THAT(std::string(id.status().message()), HasSubstr("paused"));
      EXPECT_THAT(std::string(id.status().message()), HasSubstr("(max_queue 2)"));
      ++refused;
    }
  }
  EXPECT_GE(refused, 10);
}

TEST(Engine, AClientThatFillsTheQueueDoesNotBlockOthers) {
  EngineOptions options = TinyOptions();
  options.max_seqs = 1;
  options.max_queue = 5;
  const auto engine = Load(options);
  std::atomic<int> failed = 0;
  std::promise<void> gate;
  const auto submit = [&, open = gate.get_future().share()](const std::string& client) {
    Request request = Ids({1}, 4);
    request.client = client;
    // The engine thread waits in the first callback, so no request ends meanwhile.
    const auto wait = [open, &failed](const OutputChunk& chunk) {
      open.wait();
      failed += chunk.finish_reason == FinishReason::kError;
    };
    return engine->Submit(std::move(request), wait).ok();
  };
  for (int i = 0; i < 6; ++i) EXPECT_TRUE(submit("many")) << i;
  EXPECT_FALSE(submit("many"));
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(submit("one")) << i;
  EXPECT_FALSE(submit("one"));
  gate.set_value();
  engine->Drain(60);
  EXPECT_EQ(failed, 0) << "were accepted and then refused";
}

TEST(Engine, FingerprintsNameWhatAnAnswerDependsOn) {
  const std::string plain = Load()->system_fingerprint();
  EXPECT_EQ(plain.size(), 19u);
  EngineOptions options = TinyOptions();
  options.threads = 1;  // answers do not depend on it
  options.max_seqs = 2;
  EXPECT_EQ(Load(options)->system_fingerprint(), plain);
  options.isa = "baseline";
  EXPECT_NE(Load(options)->system_fingerprint(), plain);
  options = TinyOptions();
  options.kv_cache_dtype = KvCacheDtype::kBF16;
  const std::string bf16 = Load(options)->system_fingerprint();
  EXPECT_NE(bf16, plain);
  options.kv_cache_dtype = KvCacheDtype::kFp8;
  EXPECT_NE(Load(options)->system_fingerprint(), plain);
  EXPECT_NE(Load(options)->system_fingerprint(), bf16);
  options = TinyOptions();
  options.model = TOKAMAK_SOURCE_DIR "/tests/golden/llama_odd.gguf";
  const std::string odd = Load(options)->system_fingerprint();
  EXPECT_NE(odd, plain);
  // The same model with other weights: only weights differ in the files.
  std::string bytes = ReadWholeFile(options.model, 1 << 24).value();
  for (size_t i = bytes.size() / 2; i < bytes.size(); i += 2) bytes[i] ^= 1;
  options.model = ::testing::TempDir() + "/trained.gguf";
  std::ofstream(options.model, std::ios::binary) << bytes;
  EXPECT_NE(Load(options)->system_fingerprint(), odd);
}

TEST(Engine, RecordsARunThatReplaysWithAnyNumberOfThreads) {
  const std::string path = ::testing::TempDir() + "/engine_test.rec";
  EngineOptions options = TinyOptions();
  options.num_blocks = 12;
  options.kv_cache_dtype = KvCacheDtype::kFp8;
  options.record_path = path;
  {
    const auto engine = Load(options);
    for (int i = 0; i < 8; ++i) {
      Request request = Ids(std::vector<int32_t>(4 + 3 * i, i), 20);
      request.sampling.temperature = 1;
      request.sampling.n = 2;
      const auto id = engine->Submit(request, [](const OutputChunk&) {});
      ASSERT_TRUE(id.ok());
      if (i % 3 == 0) engine->Cancel(*id);
    }
    engine->Drain(1000);
    // The file must be complete now, because a server may exit without destroying its engine.
    const auto report = ReplayFile({.path = path, .model = "", .schedule_only = true});
    ASSERT_TRUE(report.ok()) << report.status().ToString();
    EXPECT_EQ(report->counts.requests, 8);
  }
  for (const int32_t threads : {1, 2}) {
    const auto report = ReplayFile({.path = path, .model = "", .threads = threads});
    ASSERT_TRUE(report.ok()) << report.status().ToString();
    EXPECT_EQ(report->counts.requests, 8);
    EXPECT_GT(report->counts.tokens, 100);
    EXPECT_EQ(report->fingerprint, report->recorded_fingerprint);
  }
  EXPECT_TRUE(ReplayFile({.path = path, .model = "", .schedule_only = true}).ok());
  // With other weights other tokens are drawn, and the replay reports the difference.
  const auto other =
      ReplayFile({.path = path, .model = TOKAMAK_SOURCE_DIR "/tests/golden/llama_odd.gguf"});
  EXPECT_FALSE(other.ok());
  std::remove(path.c_str());
}

}  // namespace
}  // namespace tokamak
