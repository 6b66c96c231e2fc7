#include "rpc/worker_messages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <utility>

#include "base/error.h"

namespace tokamak {
namespace {

using testing::HasSubstr;

ExecutorLimits Limits() {
  return {.cache = {.groups = {{CacheGroupKind::kFull, 16, 0}, {CacheGroupKind::kWindow, 16, 9}},
                    .block_bytes = 1,
                    .num_device_blocks = 2,
                    .num_host_blocks = 3,
                    .original_context = 4,
                    .sequence_state = true},
          .max_seqs = 5,
          .max_step_tokens = 6,
          .max_step_drafts = 7,
          .max_context = 8,
          .vocab_size = 40,
          .depth = 10,
          .stages = 2,
          .has_candidates = true,
          .max_encoder_rows = 11,
          .max_step_image_rows = 12,
          .whole_image_rows = 13,
          .num_moe_layers = 14,
          .max_experts = 15};
}

template <typename T>
T BackFromWorker(const T& message) {
  const auto decoded = DecodeToDriver(EncodeToDriver(message), Limits());
  EXPECT_TRUE(decoded.ok()) << decoded.status().ToString();
  return std::get<T>(*decoded);
}
template <typename T>
T BackFromDriver(const T& message) {
  const auto decoded = DecodeToWorker(EncodeToWorker(message), Limits());
  EXPECT_TRUE(decoded.ok()) << decoded.status().ToString();
  return std::get<T>(*decoded);
}

TEST(WorkerMessages, ComeBackAsTheyWere) {
  Hello hello;
  hello.version = "tokamak 1.2.3";
  hello.model = "tiny";
  hello.weights = UINT64_MAX;
  hello.rank = 3;
  EXPECT_EQ(BackFromWorker(hello), hello);
  EXPECT_EQ(BackFromWorker(Loading{0.25}), Loading{0.25});
  const Loaded loaded{
      .backend = "cpu/x", .weight_bytes = 1, .expert_bytes = 2, .image_weight_bytes = 3};
  EXPECT_EQ(BackFromWorker(loaded), loaded);
  EXPECT_EQ(BackFromWorker(Connected{int64_t{1} << 40}), Connected{int64_t{1} << 40});
  EXPECT_EQ(BackFromWorker(Limits()), Limits());
  EXPECT_EQ(BackFromWorker(Quiet{}), Quiet{});
  RowOutput row;
  row.slot = 2;
  row.tokens = {30};
  StepOutput output{.number = 9, .rows = {row}};
  output.proposing_seconds = 0.5;
  EXPECT_EQ(BackFromWorker(output), output);
  const RankStats stats{
      .steps = 9, .step_seconds = 0.5, .wait_seconds = 0.25, .received_bytes = 1 << 30};
  EXPECT_EQ(BackFromWorker(stats), stats);
  const Status error = ResourceExhausted("no more memory");
  EXPECT_EQ(BackFromWorker(error).ToString(), error.ToString());
  EXPECT_EQ(BackFromDriver(error).ToString(), error.ToString());

  EXPECT_EQ(BackFromDriver(ConnectRank{}), ConnectRank{});
  const StartRank start{.arena_bytes = 1, .num_device_blocks = 2, .num_host_blocks = 3};
  EXPECT_EQ(BackFromDriver(start), start);
  const StepInput step{.number = 300, .free = {1}, .rows = {{.slot = 1, .num_tokens = 3}}};
  EXPECT_EQ(BackFromDriver(step), step);
  const StepMasks masks{.number = 7, .masks = {{.slot = 1, .draw = 2, .allowed = {0x80000001, 3}}}};
  EXPECT_EQ(BackFromDriver(masks), masks);
  EXPECT_EQ(BackFromDriver(StepTaken{300}), StepTaken{300});
  EXPECT_EQ(BackFromDriver(Quiesce{}), Quiesce{});
  EXPECT_EQ(BackFromDriver(ResetRank{}), ResetRank{});
}

TEST(WorkerMessages, LoadRankHasWhatDecidesResultsAndNoPath) {
  EngineOptions options{.model = "/secret/model.gguf",
                        .device = "cuda:3",
                        .isa = "avx2",
                        .precise = true,
                        .kernels = KernelChoice::kTriton,
                        .attention = AttentionKernels::kFlashInfer,
                        .cuda_graphs = CudaGraphs::kOff,
                        .step_timeout_seconds = 12,
                        .kv_cache_dtype = KvCacheDtype::kQ8_0,
                        .mla = MlaForm::kLatent,
                        .threads = 4,
                        .tensor_parallel = 2,
                        .pipeline_parallel = 3,
                        .max_seqs = 5,
                        .max_batch_tokens = 6,
                        .max_context = 7,
                        .max_images = 8,
                        .image_cache_tokens = 9,
                        .block_size = 10,
                        .speculate = Speculation::kNgram,
                        .draft_tokens = 11,
                        .draft_min_probability = 0.5f,
                        .uniform_routing = true,
                        .synthetic_acceptance = 0.75f,
                        .record_path = "/secret/record"};
  options.steps_in_flight = 3;
  const LoadRank load{.options = options, .gpu = 5, .num_gpus = 2};
  EXPECT_EQ(EncodeToWorker(load).find("secret"), std::string::npos);
  const LoadRank back = BackFromDriver(load);
  EXPECT_EQ(std::pair(back.gpu, back.num_gpus), std::pair(5, 2));
  const EngineOptions& got = back.options;
  EXPECT_EQ(got.model, "");
  EXPECT_EQ(got.device, "auto");
  EXPECT_EQ(got.isa, "avx2");
  EXPECT_TRUE(got.precise && got.uniform_routing);
  EXPECT_EQ(got.kv_cache_dtype, KvCacheDtype::kQ8_0);
  EXPECT_EQ(got.kernels, KernelChoice::kTriton);
  EXPECT_EQ(got.attention, AttentionKernels::kFlashInfer);
  EXPECT_EQ(got.cuda_graphs, CudaGraphs::kOff);
  EXPECT_EQ(got.step_timeout_seconds, 12);
  EXPECT_EQ(got.mla, MlaForm::kLatent);
  EXPECT_EQ(got.speculate, Speculation::kNgram);
  EXPECT_EQ(std::vector<int32_t>({got.threads, got.tensor_parallel, got.pipeline_parallel,
                                  got.steps_in_flight, got.max_seqs, got.max_batch_tokens,
                                  got.max_context, got.max_images, got.image_cache_tokens,
                                  got.block_size, got.draft_tokens}),
            std::vector<int32_t>({4, 2, 3, 3, 5, 6, 7, 8, 9, 10, 11}));
  EXPECT_EQ(got.draft_min_probability, 0.5f);
  EXPECT_EQ(got.synthetic_acceptance, 0.75f);
}

// A later version may write anything behind its numbers.
TEST(WorkerMessages, AGreetingOfAnotherVersionIsReadAsFarAsItsVersion) {
  Hello hello;
  hello.protocol = kWorkerProtocol + 1;
  const std::string bytes = EncodeToDriver(hello) + "whatever";
  const auto decoded = DecodeToDriver(bytes, {});
  ASSERT_TRUE(decoded.ok()) << decoded.status().ToString();
  EXPECT_EQ(std::get<Hello>(*decoded).protocol, kWorkerProtocol + 1);
  EXPECT_FALSE(std::get<Hello>(*decoded).has_known_version());
}

TEST(WorkerMessages, ErrorsNameTheField) {
  const auto error = [](const std::string& bytes) {
    const auto decoded = DecodeToDriver(bytes, Limits());
    return decoded.ok() ? "accepted" : decoded.status().ToString();
  };
  EXPECT_THAT(error(""), HasSubstr("message to a driver: byte 0: is cut off"));
  EXPECT_THAT(error("\x09"), HasSubstr("byte 0: is 9, which is not below 9"));
  const std::string loaded = EncodeToDriver(Loaded{.backend = "cpu"});
  EXPECT_THAT(error(loaded.substr(0, 5)), HasSubstr("weight_bytes: byte 5: is cut off"));
  EXPECT_THAT(error(loaded + "x"), HasSubstr("1 bytes follow the last field"));
  EXPECT_THAT(error(std::string("\x06\x00\x00", 3)), HasSubstr("has the code of success"));
  for (const int64_t bytes : {int64_t{-1}, int64_t{1} << 56}) {
    EXPECT_THAT(error(EncodeToDriver(Connected{bytes})),
                HasSubstr("free_device_bytes: byte 1: is " + std::to_string(bytes)));
  }
  for (const auto& [gpu, num_gpus] : {std::pair(-1, 1), {1 << 16, 1}, {1, -1}, {1, 1 << 16}}) {
    const auto load = DecodeToWorker(EncodeToWorker(LoadRank{{}, gpu, num_gpus}), {});
    EXPECT_THAT(load.status().ToString(), HasSubstr(num_gpus == 1 ? " gpu: " : " num_gpus: "));
  }
  EXPECT_THAT(error(EncodeToDriver(RankStats{.steps = -1})), HasSubstr("steps: byte 1: is -1"));
  EXPECT_THAT(error(EncodeToDriver(RankStats{.received_bytes = -1})),
              HasSubstr("received_bytes: byte 2: is -1"));
  for (const auto& [step, wait] :
       {std::pair(1.0, 2.0), {1.0, -1.0}, {NAN, 0.0}, {1.0, NAN}, {INFINITY, 0.0}}) {
    EXPECT_THAT(error(EncodeToDriver(RankStats{.step_seconds = step, .wait_seconds = wait})),
                HasSubstr("impossible time"));
  }
  // Rows are bounded by the limits, which a rank that has not started does not have.
  const std::string output = EncodeToDriver(StepOutput{.number = 1, .rows = {RowOutput{}}});
  EXPECT_EQ(error(output), "accepted");
  EXPECT_THAT(DecodeToDriver(output, {}).status().ToString(),
              HasSubstr("rows: byte 2: has 1 elements, but at most 0 are allowed"));
}

}  // namespace
}  // namespace tokamak
