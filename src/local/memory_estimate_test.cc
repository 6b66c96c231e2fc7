#include "local/memory_estimate.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "base/option_names.h"

namespace tokamak {
namespace {

using ::testing::HasSubstr;

class FitsOnDevice : public ::testing::Test {
 protected:
  // GPU memory: more than the weights in bf16 and the norms need.
  static constexpr int64_t kPlenty = 1'000'000'000;

  FitsOnDevice() {
    options_.model = std::string(TOKAMAK_SOURCE_DIR) + "/tests/golden/llama_odd.gguf";
    options_.kv_cache_dtype = KvCacheDtype::kBF16;
    options_.steps_in_flight = 2;
    options_.max_seqs = 8;
    options_.max_batch_tokens = 512;
    Result<Checkpoint> checkpoint = OpenCheckpoint(options_.model);
    EXPECT_TRUE(checkpoint.ok());
    checkpoint_ = *std::move(checkpoint);
  }
  Status Check(int64_t free_bytes) const {
    return CheckFitsOnDevice(checkpoint_, options_, Task::kGenerate, free_bytes);
  }
  // The smallest memory into which weights and runner fit.
  int64_t Least() const {
    int64_t low = 0, high = kPlenty;
    while (high - low > 1) {
      const int64_t middle = (low + high) / 2;
      (Check(middle).ok() ? high : low) = middle;
    }
    return high;
  }

  EngineOptions options_;
  Checkpoint checkpoint_;
};

TEST_F(FitsOnDevice, TheWeightsAloneMayBeTooMuch) {
  EXPECT_TRUE(Check(kPlenty).ok()) << Check(kPlenty).ToString();
  const Status status = Check(20'000);
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(status.ToString(), HasSubstr("llama_odd.gguf: the weights need"));
  EXPECT_THAT(status.ToString(), HasSubstr("0.00 GB are free"));
  EXPECT_THAT(status.ToString(), HasSubstr("smaller model"));
}

TEST_F(FitsOnDevice, CacheTypesOfCpusAreRefused) {
  options_.kv_cache_dtype = KvCacheDtype::kQ8_0;
  const Status status = Check(kPlenty);
  EXPECT_EQ(status.code(), StatusCode::kUnimplemented);
  EXPECT_THAT(status.ToString(), HasSubstr("kv_cache_dtype=q8_0"));
}

TEST(RunnerShapeOfImages, HasRoomForThoseOfAPromptAndEncodesAsManyAsAStepShows) {
  EngineOptions options;
  options.kv_cache_dtype = KvCacheDtype::kF32;
  options.max_seqs = 1;
  options.steps_in_flight = 1;
  const auto shape = [&options](const std::string& name) {
    const Checkpoint checkpoint =
        OpenCheckpoint(TOKAMAK_SOURCE_DIR "/tests/golden/hf/" + name).value();
    const auto count = MakeCountOps();
    const auto model = LoadModel(checkpoint, *count, MakeLoadOptions(options)).value();
    const RunnerShape shape = MakeRunnerShape(options, *model);
    return std::pair(shape.max_encoder_rows, shape.max_step_image_rows);
  };
  options.max_images = 3;
  options.max_batch_tokens = 40;
  EXPECT_EQ(shape("llama_dynamic"), std::pair(0, 0));
  // Images of llava_odd have 16 rows.
  EXPECT_EQ(shape("llava_odd"), std::pair(48, 40));
  options.max_batch_tokens = 512;
  EXPECT_EQ(shape("llava_odd"), std::pair(48, 48));
  options.max_batch_tokens = 8;
  EXPECT_EQ(shape("llava_odd"), std::pair(48, 16));
  // A thumbnail of 16 rows, 2 x 2 tiles with as many, and the ends of 8 lines.
  EXPECT_EQ(shape("llava_next_odd"), std::pair(264, 88));
  // Rows for an embedding and for two layers (deepstack), in 256 MiB.
  options.max_images = 1000;
  EXPECT_EQ(shape("qwen3_vl_odd").first, (256 << 20) / (3 * 42 * 4));
  options.max_images = 3;
  options.image_cache_tokens = 5;
  EXPECT_EQ(shape("llava_odd"), std::pair(16, 16));
  options.image_cache_tokens = 1000;
  EXPECT_EQ(shape("llava_odd"), std::pair(1000, 16));
  options.max_images = 0;
  EXPECT_EQ(shape("llava_odd"), std::pair(0, 0));
}

// A Llama whose heads, or vocabulary, are as large as given.
Checkpoint LlamaWith(int head_dim, int vocab_size) {
  const std::string config = fmt::format(
      R"({{"architectures": ["LlamaForCausalLM"], "hidden_act": "silu", "vocab_size": {},
          "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "head_dim": {},
          "num_attention_heads": 1, "rms_norm_eps": 1e-5, "max_position_embeddings": 64}})",
      vocab_size, head_dim);
  return MakeDummyCheckpoint(ParseConfigJson(config, "llama").value(), "llama").value();
}

TEST_F(FitsOnDevice, SizesBeyondTheKernelsAreRefused) {
  checkpoint_ = LlamaWith(/*head_dim=*/512, /*vocab_size=*/100);
  EXPECT_TRUE(Check(kPlenty).ok()) << Check(kPlenty).ToString();
  checkpoint_ = LlamaWith(514, 100);
  EXPECT_EQ(Check(kPlenty).code(), StatusCode::kUnimplemented);
  EXPECT_THAT(Check(kPlenty).ToString(), HasSubstr("llama: CUDA: attention with values of 514"));
  checkpoint_ = LlamaWith(578, 100);
  EXPECT_EQ(Check(kPlenty).code(), StatusCode::kUnimplemented);
  EXPECT_THAT(Check(kPlenty).ToString(), HasSubstr("llama: CUDA: attention with heads of 578"));
  checkpoint_ = LlamaWith(8, 1 << 24);
  EXPECT_EQ(Check(kPlenty).code(), StatusCode::kUnimplemented);
  EXPECT_THAT(Check(kPlenty).ToString(), HasSubstr("a vocabulary of 16777216"));
}

// Only --mla latent decompresses by a kernel with that limit.
TEST_F(FitsOnDevice, LatentsThatAreTooLargeToDecompressAreAbsorbed) {
  const std::string config =
      R"({"architectures": ["DeepseekV3ForCausalLM"], "hidden_act": "silu", "vocab_size": 50,
          "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1,
          "num_attention_heads": 2, "rms_norm_eps": 1e-5, "max_position_embeddings": 256,
          "rope_theta": 1e4, "first_k_dense_replace": 1, "moe_intermediate_size": 8,
          "n_routed_experts": 4, "num_experts_per_tok": 2, "n_group": 1, "topk_group": 1,
          "q_lora_rank": null, "kv_lora_rank": 512, "qk_rope_head_dim": 64,
          "qk_nope_head_dim": 256, "v_head_dim": 128})";
  checkpoint_ = MakeDummyCheckpoint(ParseConfigJson(config, "latents").value(), "latents").value();
  for (const MlaForm form : {MlaForm::kAbsorbed, MlaForm::kAuto, MlaForm::kStandard}) {
    options_.mla = form;
    EXPECT_TRUE(Check(kPlenty).ok()) << Name(form) << ": " << Check(kPlenty).ToString();
  }
  options_.mla = MlaForm::kLatent;
  EXPECT_THAT(Check(kPlenty).ToString(), HasSubstr("decompressed to heads of 320"));
}

TEST_F(FitsOnDevice, ErrorSaysWhichOptionsToLower) {
  const Status status = Check(Least() - 1);
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  for (const char* part :
       {"whose weights leave", "max_batch_tokens", "max_seqs", "max_context", "kv_cache_bytes"}) {
    EXPECT_THAT(status.ToString(), HasSubstr(part));
  }
}

// Following the advice lowers the need.
TEST_F(FitsOnDevice, LowerOptionsNeedLess) {
  const int64_t least = Least();
  EngineOptions before = options_;
  options_.max_batch_tokens = 64;
  EXPECT_LT(Least(), least - 10'000);
  options_ = before;
  options_.max_seqs = 1;
  EXPECT_LT(Least(), least);
  options_ = before;
  options_.precise = true;
  EXPECT_GT(Least(), least + 100'000);
  EXPECT_THAT(Check(20'000).ToString(), HasSubstr("as f32 (precise)"));
  options_ = before;
  options_.kv_cache_bytes = 50 << 20;
  EXPECT_GT(Least(), least + (49 << 20));
  EXPECT_THAT(Check(least).ToString(), HasSubstr("lower num_blocks, kv_cache_bytes"));
  // The host tier uses other memory.
  options_ = before;
  options_.host_cache_bytes = int64_t{1} << 40;
  EXPECT_EQ(Least(), least);
}

TEST_F(FitsOnDevice, TheCacheTakesMostOfAGpuAndHalfOfAHost) {
  options_.max_seqs = 200'000;  // more than the memory holds
  options_.max_batch_tokens = 64;
  const std::unique_ptr<CountOps> count = MakeCountOps();
  const auto model = LoadModel(checkpoint_, *count, MakeLoadOptions(options_));
  ASSERT_TRUE(model.ok()) << model.status().ToString();
  const auto cache_share = [&](int64_t available, bool on_device) {
    const auto profile = EstimateRunnerMemory(**model, options_, MakeRunnerShape(options_, **model),
                                              available, on_device);
    EXPECT_TRUE(profile.ok()) << profile.status().ToString();
    return static_cast<double>(profile->num_device_blocks) *
           static_cast<double>(profile->block_bytes) /
           static_cast<double>(available - profile->arena_bytes - profile->staging_bytes);
  };
  constexpr int64_t kGiB = 1 << 30;
  EXPECT_NEAR(cache_share(40 * kGiB, true), 0.9, 0.001);
  EXPECT_NEAR(cache_share(4 * kGiB, true), 0.75, 0.001);
  EXPECT_NEAR(cache_share(kGiB + kGiB / 2, true), 0.5, 0.001);
  EXPECT_NEAR(cache_share(40 * kGiB, false), 0.5, 0.001);
}

TEST(ChooseForDevice, SpeculatesByDefault) {
  const auto chosen = [](Speculation given, bool gpu, int32_t steps_in_flight) {
    EngineOptions options;
    options.speculate = given;
    options.steps_in_flight = steps_in_flight;
    ChooseForDevice(options, gpu);
    return options.speculate;
  };
  EXPECT_EQ(EngineOptions().speculate, Speculation::kAuto);
  for (const bool gpu : {false, true}) {
    for (const int32_t steps_in_flight : {0, 1, 2}) {
      EXPECT_EQ(chosen(Speculation::kAuto, gpu, steps_in_flight), Speculation::kNgram);
      EXPECT_EQ(chosen(Speculation::kOff, gpu, steps_in_flight), Speculation::kOff);
    }
  }
}

class ModelWithState final : public Model {
 public:
  explicit ModelWithState(int32_t num_states) {
    ModelSpec spec;
    spec.architecture = "Some";
    spec.cache.state_layers.resize(static_cast<size_t>(num_states));
    set_spec(std::move(spec));
  }
  Tensor Forward(nn::Pass&) const override { return {}; }
};

TEST(ChooseForModel, AStateLeavesNoPrefixCacheDraftsAndHostTier) {
  const auto choose = [](auto change, int32_t num_states) {
    EngineOptions given;
    change(given);
    EngineOptions options = given;
    ChooseForDevice(options, /*gpu=*/false);
    const ModelWithState model(num_states);
    const Status status = ChooseForModel(options, given, model);
    if (!status.ok()) return status.ToString();
    options.kv_cache_dtype = KvCacheDtype::kF32;
    return fmt::format("{} {} {}", Name(options.speculate), options.prefix_cache,
                       MakeRunnerShape(options, model).max_step_drafts);
  };
  const auto nothing = [](EngineOptions&) {};
  const auto ngram = [](EngineOptions& o) { o.speculate = Speculation::kNgram; };
  EXPECT_EQ(choose(nothing, 0), "ngram true 64");
  EXPECT_EQ(choose(ngram, 0), "ngram true 64");
  EXPECT_EQ(choose(nothing, 1), "off false 0");
  EXPECT_EQ(choose(ngram, 1),
            "not supported: speculate=ngram: Some keeps a state per sequence, which cannot go back "
            "to where it was before refused drafts; use off or auto, without a draft model");
  EXPECT_THAT(choose([](EngineOptions& o) { o.draft_model = "small"; }, 1),
              ::testing::HasSubstr("speculate=auto: Some keeps a state per sequence"));
  EXPECT_EQ(choose([](EngineOptions& o) { o.host_cache_bytes = 1; }, 1),
            "not supported: host_cache_bytes: the host tier would stay empty, because Some keeps a "
            "state per sequence and so uses no cached blocks; use 0");
}

// 14 of a head's elements rotate: a cosine and a sine per two elements and position.
TEST(LoadedBytes, IncludesTheRopeTableOfTheContext) {
  EngineOptions options;
  options.model = std::string(TOKAMAK_SOURCE_DIR) + "/tests/golden/llama_odd.gguf";
  const Result<Checkpoint> checkpoint = OpenCheckpoint(options.model);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status().ToString();
  const auto bytes = [&](int32_t context) {
    options.max_context = context;
    return LoadedBytes(*checkpoint, options, Task::kGenerate).value();
  };
  constexpr int64_t kPosition = 14 * int64_t{sizeof(float)};
  EXPECT_EQ(bytes(512) - bytes(100), 412 * kPosition);
  EXPECT_EQ(bytes(0), bytes(512));
  // The file's RoPE divisors are used for the RoPE table but are not weights of the model.
  constexpr int64_t kDivisors = 7 * int64_t{sizeof(float)};
  EXPECT_EQ(bytes(1) - kPosition, checkpoint->weight_bytes - kDivisors);
}

}  // namespace
}  // namespace tokamak
