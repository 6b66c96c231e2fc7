// Tests opening libtokamak_cuda.so, and what becomes of errors. The operations themselves are
// tested with those of the other backends (ops/*_test.cc).
#include "ops/cuda/cuda_ops.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "base/error.h"
#include "ops/testing/memory_source.h"
#include "ops/testing/op_harness.h"

namespace tokamak {
namespace {

using ::testing::HasSubstr;

// A file beside this program.
std::string Neighbour(const std::string& name) {
  char path[4096];
  const ssize_t length = ::readlink("/proc/self/exe", path, sizeof(path));
  const std::string program(path, static_cast<size_t>(length));
  return program.substr(0, program.rfind('/') + 1) + name;
}

TEST(CudaLibrary, AMissingFileIsNamed) {
  const Status status = MakeCudaOpsFrom("/nonexistent/libtokamak_cuda.so", {}).status();
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_THAT(status.ToString(), HasSubstr("/nonexistent/libtokamak_cuda.so"));
}

TEST(CudaLibrary, AnotherBuildIsRefusedBeforeAnythingCrosses) {
  const std::string library = Neighbour("libtokamak_cuda_stranger.so");
  const Status status = MakeCudaOpsFrom(library, {}).status();
  EXPECT_EQ(status.code(), StatusCode::kInternal);
  EXPECT_THAT(status.ToString(), HasSubstr("another build of tokamak"));
  EXPECT_THAT(status.ToString(), HasSubstr(library));
}

TEST(CudaLibrary, AnyOtherLibraryIsRefused) {
  const Status status = MakeCudaOpsFrom("libm.so.6", {}).status();
  EXPECT_THAT(status.ToString(), HasSubstr("libm.so.6 is not a CUDA backend"));
}

class CudaErrors : public ::testing::Test {
 protected:
  void SetUp() override {
    const Result<std::unique_ptr<Ops>> ops = MakeCudaOps({.threads = 1});
    if (!ops.ok()) GTEST_SKIP() << "no CUDA backend here: " << ops.status().ToString();
  }
};

TEST_F(CudaErrors, ADeviceThatIsNotThereIsUnavailable) {
  const Status status = MakeCudaOps({.device = 1000}).status();
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_THAT(status.ToString(), HasSubstr("1000"));
}

TEST_F(CudaErrors, MemoryThatIsNotThereIsAnErrorOfThatCallAlone) {
  const auto ops = MakeCudaOps({.threads = 1});
  ASSERT_TRUE(ops.ok());
  for (const MemoryKind kind : {MemoryKind::kDevice, MemoryKind::kHostPinned}) {
    const Status status = (*ops)->Allocate(size_t{1} << 50, kind).status();
    EXPECT_EQ(status.code(), StatusCode::kResourceExhausted) << status.ToString();
    EXPECT_THAT(status.ToString(), HasSubstr(std::to_string(size_t{1} << 50)));
  }
  EXPECT_TRUE((*ops)->Allocate(1 << 20, MemoryKind::kDevice).ok());
}

// A copy on one stream waits for a long chain of them on another.
TEST_F(CudaErrors, AStreamWaitsForAnotherStreamsEvent) {
  const auto made = MakeCudaOps({.threads = 1});
  ASSERT_TRUE(made.ok());
  Ops& ops = **made;
  constexpr size_t kBytes = 64 << 20;
  Result<Buffer> device = ops.Allocate(2 * kBytes, MemoryKind::kDevice);
  Result<Buffer> host = ops.Allocate(2 * kBytes, MemoryKind::kHostPinned);
  ASSERT_TRUE(device.ok() && host.ok());
  const auto first = ops.MakeStream(), second = ops.MakeStream();
  const auto event = ops.MakeEvent();
  std::byte* end = host->data() + kBytes;
  std::memset(host->data(), 1, kBytes);
  std::memset(end, 0, kBytes);
  ops.CopyToDevice(device->data(), end, kBytes, *first);
  const std::vector<CopyRanges::Range> ranges = {{device->data(), device->data() + kBytes}};
  for (int i = 0; i < 50; ++i) ops.Run(CopyRanges{.ranges = ranges, .bytes = kBytes}, *first);
  ops.CopyToDevice(device->data(), host->data(), kBytes, *first);
  ops.Run(CopyRanges{.ranges = ranges, .bytes = kBytes}, *first);
  ops.Record(*event, *first);
  ops.WaitFor(*second, *event);
  ops.CopyToHost(end, device->data() + kBytes, kBytes, *second);
  ASSERT_TRUE(ops.Synchronize(*second).ok());
  EXPECT_EQ(std::memcmp(host->data(), end, kBytes), 0);
}

// A graph reads its memory when it runs, and does what its operations do.
TEST_F(CudaErrors, AGraphDoesWhatItsOperationsDo) {
  const auto made = MakeCudaOps({.threads = 1});
  ASSERT_TRUE(made.ok());
  Ops& ops = **made;
  ASSERT_TRUE(ops.has_graphs());
  const auto source = MemorySource::Random("w", DType::kBF16, {96, 64}, 1);
  const auto weight = ops.PackWeight({.parts = {source}, .use = WeightUse::kTied});
  ASSERT_TRUE(weight.ok());
  OpRunner run(ops);
  const Tensor ids = run.Ints({1, 2, 3, 4, 5});
  const Tensor ones = run.Floats(std::vector<float>(64, 1.0f), {64});
  const Tensor hidden = run.Output({5, 64}), normed = run.Output({5, 64}, DType::kBF16);
  const Tensor out = run.Output({5, 96});
  const auto work = [&] {
    run.Run(Embed{.ids = ids, .table = weight->get(), .out = hidden});
    run.Run(AddRmsNorm{.residual = hidden, .weight = ones, .eps = 1e-5f, .out = normed});
    run.Run(Linear{.x = normed, .weight = weight->get(), .bias = {}, .out = out});
  };
  const std::vector<int32_t> others = {95, 7, 7, 0, 50};
  const auto set_ids = [&] {
    ops.CopyToDevice(ids.data, others.data(), others.size() * sizeof(int32_t), run.stream());
  };
  work();
  const std::vector<float> first = run.Download(out);
  Result<std::unique_ptr<Graph>> graph = ops.Capture(run.stream(), work);
  ASSERT_TRUE(graph.ok()) << graph.status().ToString();
  set_ids();
  ops.Launch(**graph, run.stream());
  const std::vector<float> replayed = run.Download(out);
  work();
  EXPECT_TRUE(SameBits(replayed, run.Download(out)));
  EXPECT_FALSE(SameBits(replayed, first));
}

class CudaKernels : public CudaErrors {};

// cuBLASLt gets what is aligned, the plain kernel the rest.
TEST_F(CudaKernels, ProductsOfUnalignedRowsAreThoseOfAlignedOnes) {
  const auto made = MakeCudaOps({.threads = 1});
  ASSERT_TRUE(made.ok());
  Ops& ops = **made;
  constexpr int64_t kTokens = 70, kCols = 64, kRows = 96;
  const auto source = MemorySource::Random("w", DType::kBF16, {kRows, kCols}, 1);
  const auto weight = ops.PackWeight({.parts = {source}, .use = WeightUse::kTied});
  ASSERT_TRUE(weight.ok());
  OpRunner run(ops);
  std::vector<int32_t> ids(kTokens);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(i * 7 % kRows);
  const Tensor hidden = run.Output({kTokens, kCols});
  const Tensor ones = run.Floats(std::vector<float>(kCols, 1.0f), {kCols});
  const Tensor bias = run.Floats(std::vector<float>(kRows, 0.25f), {kRows});
  run.Run(Embed{.ids = run.Ints(ids), .table = weight->get(), .out = hidden});
  std::vector<std::vector<float>> products;
  for (const int64_t width : {kCols, kCols + 1}) {
    const Tensor x = run.Output({kTokens, width}, DType::kBF16).Cols(0, kCols);
    const Tensor out = run.Output({kTokens, kRows});
    run.Run(AddRmsNorm{.residual = hidden, .weight = ones, .eps = 1e-5f, .out = x});
    run.Run(Linear{.x = x, .weight = weight->get(), .bias = bias, .out = out});
    products.push_back(run.Download(out));
  }
  for (size_t i = 0; i < products[0].size(); ++i) {
    ASSERT_NEAR(products[0][i], products[1][i], 1e-3) << i;
  }
}

// In a process of its own: the kernel occupies the device until that has ended.
void RunAStall() {
  const auto made = MakeCudaOps({.threads = 1, .step_timeout_seconds = 0.2, .stall_event = 1});
  if (!made.ok()) std::_Exit(1);
  {
    Ops& ops = **made;
    const Result<Buffer> device = ops.Allocate(1 << 20, MemoryKind::kDevice);
    const Result<Buffer> host = ops.Allocate(1 << 20, MemoryKind::kHostPinned);
    const auto stream = ops.MakeStream();
    const auto event = ops.MakeEvent();
    if (!device.ok() || !host.ok()) std::_Exit(2);
    ops.Record(*event, *stream);
    if (ops.Reached(*event)) std::_Exit(3);
    const Status awaited = ops.Await(*event);
    if (awaited.message().find("did not finish its work within 0.2 s") == std::string::npos) {
      std::_Exit(4);
    }
    if (ops.Synchronize(*stream).ToString() != awaited.ToString()) std::_Exit(5);
    if (!ops.Reached(*event)) std::_Exit(6);  // so that callers call Await
    ops.CopyToDevice(device->data(), host->data(), 1 << 20, *stream);
  }
  std::fprintf(stderr, "all was given up\n");
  std::_Exit(0);
}

TEST_F(CudaErrors, AKernelThatNeverEndsIsGivenUpAndSoIsTheDevice) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(RunAStall(), ::testing::ExitedWithCode(0), "all was given up");
}

// A small model's worth of every kind of call: load, one step, its results.
class SmallStep {
 public:
  explicit SmallStep(Ops& ops) : ops_(ops) {}

  Status Run() {
    RETURN_IF_ERROR(Load());
    Forward();
    results_.resize(kTokens);
    std::vector<SampleRow> rows;
    for (int32_t t = 0; t < kTokens; ++t) rows.push_back({.slot = t, .position = 1});
    masks_ = {{.slot = 1, .allowed = {7, 0}}};
    sampler_->Sample(logits_, rows, masks_, results_, *stream_);
    ops_.Record(*done_, *stream_);
    (void)ops_.Reached(*done_);
    const Status awaited = ops_.Await(*done_);
    const Status again = ops_.Await(*done_);
    const Status synchronized = ops_.Synchronize(*stream_);
    if (!awaited.ok()) {  // the first error stays
      EXPECT_EQ(again.ToString(), awaited.ToString());
      EXPECT_EQ(synchronized.ToString(), awaited.ToString());
    }
    RETURN_IF_ERROR(awaited);
    RETURN_IF_ERROR(again);
    for (const SampleResult& result : results_) EXPECT_EQ(result.health, RowHealth::kOk);
    return synchronized;
  }

 private:
  static constexpr int32_t kTokens = 3, kHidden = 64, kVocab = 48, kHeadDim = 32;

  Result<Tensor> Allocate(DType dtype, Shape shape) {
    const size_t bytes = RowBytes(dtype, shape.elements());
    ASSIGN_OR_RETURN(Buffer buffer, ops_.Allocate(bytes, MemoryKind::kDevice));
    buffers_.push_back(buffer);
    return Tensor(buffer.data(), dtype, shape);
  }
  template <typename T>
  Result<Tensor> Upload(const std::vector<T>& values, DType dtype, Shape shape) {
    ASSIGN_OR_RETURN(const Tensor tensor, Allocate(dtype, shape));
    ops_.CopyToDevice(tensor.data, values.data(), values.size() * sizeof(T), *stream_);
    RETURN_IF_ERROR(ops_.Synchronize(*stream_));
    return tensor;
  }

  Status Load() {
    stream_ = ops_.MakeStream();
    done_ = ops_.MakeEvent();
    const auto source = MemorySource::Random("w", DType::kQ8_0, {kVocab, kHidden}, 1);
    ASSIGN_OR_RETURN(table_, ops_.PackWeight({.parts = {source}, .use = WeightUse::kTied}));
    const auto wide = MemorySource::Random("qkv", DType::kBF16, {3 * kHidden, kHidden}, 2);
    ASSIGN_OR_RETURN(qkv_weight_, ops_.PackWeight({.parts = {wide}}));
    const AttentionShape shape = {.num_heads = kHidden / kHeadDim,
                                  .num_kv_heads = kHidden / kHeadDim,
                                  .head_dim = kHeadDim,
                                  .block_size = 16,
                                  .kv_dtype = DType::kF16,
                                  .max_seqs = 1,
                                  .max_tokens = kTokens,
                                  .max_blocks_per_seq = 1};
    ASSIGN_OR_RETURN(plan_, ops_.MakeAttentionPlan(shape));
    ASSIGN_OR_RETURN(
        sampler_,
        ops_.MakeSampler({.max_seqs = kTokens, .max_rows = kTokens, .vocab_size = kVocab}));
    ASSIGN_OR_RETURN(ids_, Upload<int32_t>({1, 2, 3}, DType::kI32, {kTokens}));
    ASSIGN_OR_RETURN(positions_, Upload<int32_t>({0, 1, 2}, DType::kI32, {kTokens}));
    ASSIGN_OR_RETURN(slot_mapping_, Upload<int64_t>({16, 17, 18}, DType::kI64, {kTokens}));
    ASSIGN_OR_RETURN(device_query_start_loc_, Upload(query_start_loc_, DType::kI32, {2}));
    ASSIGN_OR_RETURN(device_seq_lens_, Upload(seq_lens_, DType::kI32, {1}));
    ASSIGN_OR_RETURN(zero_, Upload<int32_t>({0}, DType::kI32, {1}));
    ASSIGN_OR_RETURN(table_of_blocks_, Upload<int32_t>({1}, DType::kI32, {1, 1}));
    ASSIGN_OR_RETURN(ones_, Upload(std::vector<float>(kHidden, 1.0f), DType::kF32, {kHidden}));
    ASSIGN_OR_RETURN(residual_, Allocate(DType::kF32, {kTokens, kHidden}));
    ASSIGN_OR_RETURN(normed_, Allocate(DType::kBF16, {kTokens, kHidden}));
    ASSIGN_OR_RETURN(qkv_, Allocate(DType::kF32, {kTokens, 3 * kHidden}));
    ASSIGN_OR_RETURN(mixed_, Allocate(DType::kBF16, {kTokens, kHidden}));
    ASSIGN_OR_RETURN(logits_, Allocate(DType::kF32, {kTokens, kVocab}));
    ASSIGN_OR_RETURN(pool_, Allocate(DType::kI8, {4 * 2 * 16 * kHidden * 2}));
    ASSIGN_OR_RETURN(graph_, ops_.Capture(*stream_, [this] {
      ops_.Run(Embed{.ids = ids_, .table = table_.get(), .out = residual_}, *stream_);
      ops_.Run(AddRmsNorm{.residual = residual_, .weight = ones_, .eps = 1e-5f, .out = normed_},
               *stream_);
    }));
    return Status();
  }

  void Forward() {
    for (int32_t t = 0; t < kTokens; ++t) {
      sampler_->Admit(t,
                      {.top_p = 0.9f,
                       .frequency_penalty = 0.5f,
                       .logit_bias = {{1, 0.5f}},
                       .seed = 3,
                       .logprobs = 2},
                      /*choice=*/0, ids_host_, 1, *stream_);
    }
    sampler_->FillTokens(ids_, fills_, *stream_);
    plan_->Fill({.query_start_loc = query_start_loc_,
                 .seq_lens = seq_lens_,
                 .device_query_start_loc = device_query_start_loc_,
                 .device_seq_lens = device_seq_lens_,
                 .table_rows = zero_,
                 .block_tables = table_of_blocks_},
                *stream_);
    ops_.Launch(*graph_, *stream_);
    ops_.Run(Linear{.x = normed_, .weight = qkv_weight_.get(), .bias = {}, .out = qkv_}, *stream_);
    const KvLayerView cache = {.base = static_cast<std::byte*>(pool_.data),
                               .block_stride = 2 * 16 * kHidden * 2,
                               .k_offset = 0,
                               .v_offset = 16 * kHidden * 2,
                               .dtype = DType::kF16,
                               .block_size = 16,
                               .num_kv_heads = kHidden / kHeadDim,
                               .head_dim = kHeadDim};
    RopeAndStore store;
    store.q = qkv_.Cols(0, kHidden);
    store.k = qkv_.Cols(kHidden, 2 * kHidden);
    store.v = qkv_.Cols(2 * kHidden, 3 * kHidden);
    store.positions = positions_;
    store.slot_mapping = slot_mapping_;
    store.cache = cache;
    ops_.Run(store, *stream_);
    ops_.Run(Attention{.q = store.q,
                       .cache = cache,
                       .plan = plan_.get(),
                       .scale = 0.2f,
                       .sinks = {},
                       .slopes = {},
                       .out = mixed_,
                       .output_lse = {}},
             *stream_);
    const std::vector<CopyRanges::Range> ranges = {
        {cache.base + cache.block_stride, cache.base + 2 * cache.block_stride}};
    ops_.Run(CopyRanges{.ranges = ranges, .bytes = static_cast<size_t>(cache.block_stride)},
             *stream_);
    ops_.Run(GatedActivation{.gate_up = qkv_.Cols(0, 2 * kHidden), .out = normed_}, *stream_);
    ops_.Run(GatherRows{.source = mixed_, .rows = positions_, .out = normed_}, *stream_);
    ops_.Run(Linear{.x = normed_, .weight = table_.get(), .bias = {}, .out = logits_}, *stream_);
  }

  Ops& ops_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<Event> done_;
  std::unique_ptr<Graph> graph_;
  std::vector<Buffer> buffers_;
  std::unique_ptr<PackedWeight> table_, qkv_weight_;
  std::unique_ptr<AttentionPlan> plan_;
  std::unique_ptr<Sampler> sampler_;
  Tensor device_query_start_loc_, device_seq_lens_, zero_, table_of_blocks_;
  Tensor ids_, positions_, slot_mapping_, ones_, residual_, normed_, qkv_, mixed_, logits_, pool_;
  std::vector<SampleResult> results_;
  std::vector<TokenMask> masks_;
  const std::vector<TokenId> ids_host_ = {1, 2, 3};
  const std::vector<TokenFill> fills_ = {{.slot = 0, .index = 2}};
  const std::vector<int32_t> query_start_loc_ = {0, kTokens}, seq_lens_ = {kTokens};
};

Status RunSmallStep(int64_t fail_call, CudaCallCounts* counts = nullptr) {
  ASSIGN_OR_RETURN(const std::unique_ptr<Ops> ops,
                   MakeCudaOps({.threads = 1, .fail_call = fail_call, .counts = counts}));
  return SmallStep(*ops).Run();
}

TEST_F(CudaErrors, TheSmallStepItselfHasNone) {
  const Status status = RunSmallStep(0);
  EXPECT_TRUE(status.ok()) << status.ToString();
}

// Runs the step again and again, each time with one call that fails: the step ends with that error,
// at once, and everything can be destroyed. Tries every `every`-th of the first calls and of the
// last ones, which are the step's own. The calls in between time and compare products for a weight;
// tries about 30 / `every` of them.
void FailCalls(int64_t every) {
  CudaCallCounts counts;
  ASSERT_TRUE(RunSmallStep(0, &counts).ok());
  const int64_t total = counts.allocations + counts.synchronizations + counts.others;
  EXPECT_GT(total, 60);  // calls that a load and a step make, at least
  constexpr int64_t kFirst = 20, kLast = 60;
  const int64_t stride = std::max(every, every * total / 30);
  int64_t failed = 0;
  for (int64_t call = 1;; call += call < kFirst || call + stride > total - kLast ? every : stride) {
    const Status status = RunSmallStep(call);
    if (status.ok()) break;
    ASSERT_THAT(status.ToString(), HasSubstr("injected")) << "call " << call;
    ++failed;
    ASSERT_LT(call, 2 * total);
  }
  fmt::print("[ injected ] {} of {} calls\n", failed, total);
}

TEST_F(CudaErrors, AnErrorInACallIsReportedAndNothingHangs) { FailCalls(1); }

// An emulated GPU takes long for all of them.
TEST_F(CudaErrors, AnErrorInEveryFifthCallIsReported) { FailCalls(5); }

}  // namespace
}  // namespace tokamak
