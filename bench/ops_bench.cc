// Microbenchmarks of the CPU ops: rates of weights and cache read (GB/s) and of arithmetic
// (GFLOP/s), per ISA, weight type and number of rows. `stack` runs all ops of a decoder of
// SmolLM2-135M's shape once, which is the speed of a step without its sampling.
//
//   ops_bench --benchmark_filter='linear/avx2/Q4_1' [--threads=N]
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/thread_pool.h"
#include "ops/cpu/cpu_ops.h"
#include "ops/testing/memory_source.h"

namespace tokamak {
namespace {

// A weight of [rows, cols] whose rows repeat after 64, which no kernel can tell.
std::unique_ptr<PackedWeight> MakeWeight(Ops& ops, DType dtype, int64_t rows, int64_t cols) {
  constexpr int64_t kDistinct = 64;
  const auto few = MemorySource::Random("few", dtype, {kDistinct, cols}, 1, 0.02f);
  const size_t row = RowBytes(dtype, cols);
  std::vector<std::byte> bytes(row * static_cast<size_t>(rows));
  for (int64_t i = 0; i < rows; ++i) {
    const Status status = few->ReadRows(i % kDistinct, i % kDistinct + 1,
                                        bytes.data() + static_cast<size_t>(i) * row);
    CHECK(status.ok());
  }
  auto weight = ops.Prepare({.parts = {std::make_shared<MemorySource>(
                                 "weight", dtype, Shape{rows, cols}, std::move(bytes))}});
  CHECK_MSG(weight.ok(), weight.status().ToString());
  return *std::move(weight);
}

// Tensors that live as long as the benchmark.
class Memory {
 public:
  explicit Memory(Ops& ops) : ops_(ops) {}
  Tensor Zeros(DType dtype, Shape shape) {
    const size_t bytes = RowBytes(dtype, shape.cols()) * static_cast<size_t>(shape.rows());
    Result<Buffer> buffer = ops_.Allocate(bytes, MemoryKind::kDevice);
    CHECK_MSG(buffer.ok(), buffer.status().ToString());
    std::memset(buffer->data(), 0, bytes);
    buffers_.push_back(*buffer);
    return Tensor(buffer->data(), dtype, shape);
  }
  Tensor Floats(Shape shape, float value = 0.5f) {
    const Tensor tensor = Zeros(DType::kF32, shape);
    std::fill_n(static_cast<float*>(tensor.data), shape.elements(), value);
    return tensor;
  }

 private:
  Ops& ops_;
  std::vector<Buffer> buffers_;
};

benchmark::Counter PerSecond(double amount) {
  return benchmark::Counter(amount, benchmark::Counter::kIsIterationInvariantRate,
                            benchmark::Counter::kIs1000);
}

std::unique_ptr<Ops> MakeOps(const std::string& isa, int threads) {
  auto ops = MakeCpuOps({.threads = threads, .isa = isa});
  CHECK_MSG(ops.ok(), ops.status().ToString());
  return *std::move(ops);
}

void LinearBench(benchmark::State& state, const std::string& isa, int threads, DType dtype) {
  const int64_t num_tokens = state.range(0), rows = 8192, cols = 2048;
  const auto ops = MakeOps(isa, threads);
  const auto stream = ops->MakeStream();
  const auto weight = MakeWeight(*ops, dtype, rows, cols);
  Memory memory(*ops);
  Linear op;
  op.x = memory.Zeros(weight->activation(), {num_tokens, cols});
  op.weight = weight.get();
  op.out = memory.Zeros(DType::kF32, {num_tokens, rows});
  for (auto _ : state) ops->Run(op, *stream);
  state.counters["B/s"] = PerSecond(static_cast<double>(weight->bytes()));
  state.counters["FLOP/s"] = PerSecond(2.0 * static_cast<double>(num_tokens * rows * cols));
}

// One paged sequence per row of the batch, blocks in order.
struct PagedCache {
  static constexpr int kBlockSize = 32;
  PagedCache(Ops& ops, int kv_heads, int head_dim, DType dtype, int64_t length, int num_queries)
      : memory(ops) {
    const int64_t blocks = length / kBlockSize + 1;
    const int64_t side = static_cast<int64_t>(kv_heads) * kBlockSize * head_dim;
    const Tensor pool = memory.Zeros(dtype, {blocks, 2 * side});
    view = {.base = static_cast<std::byte*>(pool.data),
            .block_stride = pool.row_stride,
            .k_offset = 0,
            .v_offset = pool.row_stride / 2,
            .dtype = dtype,
            .block_size = kBlockSize,
            .num_kv_heads = kv_heads,
            .head_dim = head_dim};
    table.resize(static_cast<size_t>(blocks));
    std::iota(table.begin(), table.end(), 0);
    kv_length = {static_cast<int32_t>(length)};
    query_begin = {0, num_queries};
  }
  std::unique_ptr<AttentionPlan> Plan(Ops& ops, Stream& stream, int heads) const {
    auto plan = ops.MakePlan({.num_heads = heads,
                              .num_kv_heads = view.num_kv_heads,
                              .head_dim = view.head_dim,
                              .block_size = kBlockSize,
                              .kv_dtype = view.dtype,
                              .max_seqs = 1,
                              .max_tokens = query_begin.back(),
                              .max_blocks_per_seq = static_cast<int32_t>(table.size())});
    CHECK_MSG(plan.ok(), plan.status().ToString());
    const auto view_of = [](const std::vector<int32_t>& values) {
      return Tensor(const_cast<int32_t*>(values.data()), DType::kI32,
                    Shape{static_cast<int64_t>(values.size())});
    };
    (*plan)->Fill({.query_begin = query_begin,
                   .kv_length = kv_length,
                   .device_query_begin = view_of(query_begin),
                   .device_kv_length = view_of(kv_length),
                   .table_rows = view_of(table_rows),
                   .tables = Tensor(const_cast<int32_t*>(table.data()), DType::kI32,
                                    Shape{1, static_cast<int64_t>(table.size())})},
                  stream);
    return *std::move(plan);
  }

  Memory memory;
  KvLayerView view;
  std::vector<int32_t> query_begin, kv_length, table, table_rows = {0};
};

// Queries at the end of a context of range(0) positions.
void AttentionBench(benchmark::State& state, const std::string& isa, int threads, DType dtype,
                    int num_queries) {
  constexpr int kHeads = 9, kKvHeads = 3, kHeadDim = 64;
  const int64_t length = state.range(0);
  const auto ops = MakeOps(isa, threads);
  const auto stream = ops->MakeStream();
  PagedCache cache(*ops, kKvHeads, kHeadDim, dtype, length, num_queries);
  const auto plan = cache.Plan(*ops, *stream, kHeads);
  Attention op;
  op.q = cache.memory.Floats({num_queries, kHeads * kHeadDim});
  op.cache = cache.view;
  op.plan = plan.get();
  op.scale = 0.125f;
  op.out = cache.memory.Zeros(DType::kF32, {num_queries, kHeads * kHeadDim});
  for (auto _ : state) ops->Run(op, *stream);
  const double elements = 2.0 * kKvHeads * kHeadDim * static_cast<double>(length);
  state.counters["B/s"] = PerSecond(elements * Info(dtype).block_bytes);
  state.counters["FLOP/s"] = PerSecond(4.0 * kHeads * kHeadDim * num_queries *
                                       (static_cast<double>(length) - num_queries / 2.0));
}

// A decoder of SmolLM2-135M's shape; its layers share their weights' values, not their memory.
class Stack {
 public:
  static constexpr int kLayers = 30, kHeads = 9, kKvHeads = 3, kHeadDim = 64;
  static constexpr int64_t kHidden = 576, kFfn = 1536, kVocab = 49152;
  static constexpr int64_t kQkv = (kHeads + 2 * kKvHeads) * kHeadDim;

  Stack(Ops& ops, DType dtype, int64_t context, int num_tokens)
      : ops_(ops),
        stream_(ops.MakeStream()),
        cache_(ops, kKvHeads, kHeadDim, DType::kF16, context, num_tokens),
        plan_(cache_.Plan(ops, *stream_, kHeads)),
        num_tokens_(num_tokens) {
    for (int i = 0; i < kLayers; ++i) {
      layers_.push_back(
          {MakeWeight(ops, dtype, kQkv, kHidden), MakeWeight(ops, dtype, kHidden, kHidden),
           MakeWeight(ops, dtype, 2 * kFfn, kHidden), MakeWeight(ops, dtype, kHidden, kFfn)});
    }
    head_ = MakeWeight(ops, dtype, kVocab, kHidden);
    Memory& m = cache_.memory;
    residual_ = m.Floats({num_tokens, kHidden});
    const DType activation = head_->activation();
    normed_ = m.Zeros(activation, {num_tokens, kHidden});
    qkv_ = m.Floats({num_tokens, kQkv});
    attended_ = m.Zeros(activation, {num_tokens, kHidden});
    gate_up_ = m.Floats({num_tokens, 2 * kFfn});
    gated_ = m.Zeros(activation, {num_tokens, kFfn});
    down_ = m.Floats({num_tokens, kHidden});
    norm_ = m.Floats({kHidden});
    logits_ = m.Floats({1, kVocab});
    rope_ = {.cos_sin = m.Floats({context + 1, kHeadDim}), .rotary_dim = kHeadDim};
    positions_ = m.Zeros(DType::kI32, {num_tokens});
    slots_ = m.Zeros(DType::kI64, {num_tokens});
    for (int t = 0; t < num_tokens; ++t) {
      static_cast<int32_t*>(positions_.data)[t] = static_cast<int32_t>(context - num_tokens + t);
      static_cast<int64_t*>(slots_.data)[t] = context - num_tokens + t;
    }
  }

  void Step() {
    for (const Layer& layer : layers_) {
      Run(AddRmsNorm{
          .x = &down_, .residual = residual_, .weight = norm_, .eps = 1e-5f, .out = normed_});
      Run(Linear{.x = normed_, .weight = layer.qkv.get(), .bias = {}, .out = qkv_});
      constexpr int64_t kQ = kHeads * kHeadDim, kKv = kKvHeads * kHeadDim;
      RopeAndStore rope;
      rope.q = qkv_.Cols(0, kQ);
      rope.k = qkv_.Cols(kQ, kQ + kKv);
      rope.v = qkv_.Cols(kQ + kKv, kQkv);
      rope.positions = positions_;
      rope.slots = slots_;
      rope.rope = &rope_;
      rope.cache = cache_.view;
      Run(rope);
      Run(Attention{.q = rope.q,
                    .cache = cache_.view,
                    .plan = plan_.get(),
                    .scale = 0.125f,
                    .out = attended_,
                    .output_lse = {}});
      Run(Linear{.x = attended_, .weight = layer.out.get(), .bias = {}, .out = down_});
      Run(AddRmsNorm{
          .x = &down_, .residual = residual_, .weight = norm_, .eps = 1e-5f, .out = normed_});
      Run(Linear{.x = normed_, .weight = layer.gate_up.get(), .bias = {}, .out = gate_up_});
      Run(GatedActivation{.gate_up = gate_up_, .out = gated_});
      Run(Linear{.x = gated_, .weight = layer.down.get(), .bias = {}, .out = down_});
    }
    Run(Linear{.x = normed_.Rows(num_tokens_ - 1, num_tokens_),
               .weight = head_.get(),
               .bias = {},
               .out = logits_});
  }

 private:
  struct Layer {
    std::unique_ptr<PackedWeight> qkv, out, gate_up, down;
  };
  template <typename Op>
  void Run(const Op& op) {
    ops_.Run(op, *stream_);
  }

  Ops& ops_;
  std::unique_ptr<Stream> stream_;
  PagedCache cache_;
  std::unique_ptr<AttentionPlan> plan_;
  int num_tokens_;
  std::vector<Layer> layers_;
  std::unique_ptr<PackedWeight> head_;
  Tensor residual_, normed_, qkv_, attended_, gate_up_, gated_, down_, norm_, logits_;
  Tensor positions_, slots_;
  RopeTable rope_;
};

// A step of range(0) tokens that ends a context of range(1).
void StackBench(benchmark::State& state, const std::string& isa, int threads, DType dtype) {
  const auto ops = MakeOps(isa, threads);
  Stack stack(*ops, dtype, state.range(1), static_cast<int>(state.range(0)));
  for (auto _ : state) stack.Step();
  state.counters["tok/s"] = PerSecond(static_cast<double>(state.range(0)));
}

void Register(int threads) {
  for (const std::string& isa : CpuIsaNames()) {
    if (!MakeCpuOps({.threads = 1, .isa = isa}).ok()) continue;
    for (const DType dtype : {DType::kQ4_0, DType::kQ4_1, DType::kQ8_0, DType::kQ4_K, DType::kQ6_K,
                              DType::kF16, DType::kBF16, DType::kF32}) {
      benchmark::RegisterBenchmark(
          fmt::format("linear/{}/{}", isa, Name(dtype)).c_str(),
          [=](benchmark::State& state) { LinearBench(state, isa, threads, dtype); })
          ->Arg(1)
          ->Arg(8)
          ->Arg(64)
          ->Arg(512)
          ->UseRealTime()
          ->Unit(benchmark::kMicrosecond);
    }
    for (const DType dtype : {DType::kF16, DType::kF32}) {
      for (const int queries : {1, 64}) {
        benchmark::RegisterBenchmark(
            fmt::format("attention_{}/{}/{}", queries == 1 ? "decode" : "extend", isa, Name(dtype))
                .c_str(),
            [=](benchmark::State& state) { AttentionBench(state, isa, threads, dtype, queries); })
            ->Arg(1024)
            ->Arg(8192)
            ->UseRealTime()
            ->Unit(benchmark::kMicrosecond);
      }
    }
    benchmark::RegisterBenchmark(
        fmt::format("stack/{}/Q4_1", isa).c_str(),
        [=](benchmark::State& state) { StackBench(state, isa, threads, DType::kQ4_1); })
        ->Args({1, 128})
        ->Args({1, 1024})
        ->Args({8, 128})
        ->Args({512, 512})
        ->UseRealTime()
        ->Unit(benchmark::kMillisecond);
  }
}

}  // namespace
}  // namespace tokamak

int main(int argc, char** argv) {
  int threads = tokamak::ThreadPool::PhysicalCores();
  constexpr std::string_view kThreads = "--threads=";
  for (int i = 1; i < argc; ++i) {
    if (std::string_view(argv[i]).starts_with(kThreads)) {
      threads = std::atoi(argv[i] + kThreads.size());
      for (int j = i; j + 1 < argc; ++j) argv[j] = argv[j + 1];
      --argc;
      break;
    }
  }
  tokamak::Register(threads);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
