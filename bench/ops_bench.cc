// Microbenchmarks of the CPU ops by ISA.
//
// `linear` multiplies by weights of an 8B model's shape, too many for caches: a row per weight
// type, number of threads and number of tokens. Its rates stand beside this machine's limits,
// measured in the same run ("machine" rows): `read%` is the share of the rate at which the same
// threads only read memory, `mul%` that of only multiplying in the activations' type, `tile%` that
// of AMX's int8 tiles.
//
// `stack` runs all ops of a decoder with SmolLM2-135M's shape once, which takes as long as a step
// without sampling.
//
//   ops_bench --benchmark_filter='(machine|linear)/avx2' [--threads=N] [--quick]
//
// --quick makes few small weights, to see that everything works; the figures mean nothing.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/thread_pool.h"
#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/roofline.h"
#include "ops/testing/memory_source.h"

namespace tokamak {
namespace {

// A weight of [rows, cols] whose rows repeat after 64, which does not change the speed.
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
  auto weight = ops.PackWeight({.parts = {std::make_shared<MemorySource>(
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

// Shared by the benchmarks of one program: the limits of this machine, measured once for an ISA and
// a number of threads, and the weights of the last ISA and type.
class Shared {
 public:
  // The shape is that of the gate in Llama-3.1-8B's MLP. All weights together are as large as what
  // the roofline reads.
  static constexpr int64_t kRows = 14336, kCols = 4096, kBytes = int64_t{512} << 20;
  static constexpr int64_t kQuickRows = 512;

  explicit Shared(bool quick) : rows_(quick ? kQuickRows : kRows), quick_(quick) {}

  int64_t rows() const { return rows_; }

  const CpuRoofline& Machine(const std::string& isa, int threads) {
    auto& roofline = machines_[{isa, threads}];
    if (!roofline) roofline = MeasureCpuRoofline(threads, "cpu/" + isa, kBytes);
    return *roofline;
  }

  const std::vector<std::unique_ptr<PackedWeight>>& Weights(const std::string& isa, DType dtype) {
    if (isa != isa_ || dtype != dtype_ || weights_.empty()) {
      weights_.clear();
      packer_ = MakeOps(isa, ThreadPool::PhysicalCores());
      isa_ = isa;
      dtype_ = dtype;
      int64_t bytes = 0;
      do {
        weights_.push_back(MakeWeight(*packer_, dtype, rows_, kCols));
        bytes += weights_.back()->bytes();
      } while (bytes < kBytes && !quick_);
    }
    return weights_;
  }

 private:
  int64_t rows_;
  bool quick_;
  std::map<std::pair<std::string, int>, std::optional<CpuRoofline>> machines_;
  std::unique_ptr<Ops> packer_;
  std::string isa_;
  DType dtype_ = DType::kF32;
  std::vector<std::unique_ptr<PackedWeight>> weights_;
};

void MachineBench(benchmark::State& state, const CpuRoofline& machine) {
  for (auto _ : state) benchmark::ClobberMemory();
  state.counters["GB/s"] = machine.weights_gb_s;
  state.counters["int8_GMAC/s"] = machine.int8_gmac_s;
  state.counters["f32_GMAC/s"] = machine.f32_gmac_s;
  if (machine.bf16_gmac_s > 0) state.counters["bf16_GMAC/s"] = machine.bf16_gmac_s;
  if (machine.tile_gmac_s > 0) state.counters["tile_GMAC/s"] = machine.tile_gmac_s;
}

void LinearBench(benchmark::State& state, Shared& shared, const std::string& isa, int threads,
                 DType dtype) {
  const CpuRoofline& machine = shared.Machine(isa, threads);
  const auto& weights = shared.Weights(isa, dtype);
  const int64_t num_tokens = state.range(0);
  const auto ops = MakeOps(isa, threads);
  const auto stream = ops->MakeStream();
  Memory memory(*ops);
  const DType activation = weights[0]->activation();
  Linear op;
  op.x = memory.Zeros(activation, {num_tokens, Shared::kCols});
  op.out = memory.Zeros(DType::kF32, {num_tokens, shared.rows()});
  // Each iteration takes the next weight, which no cache holds any more.
  size_t next = 0;
  const auto begin = std::chrono::steady_clock::now();
  for (auto _ : state) {
    op.weight = weights[next].get();
    next = next + 1 < weights.size() ? next + 1 : 0;
    ops->Run(op, *stream);
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  const double products = static_cast<double>(state.iterations()) / took.count() / 1e9;
  const double gb_s = products * static_cast<double>(weights[0]->bytes());
  const double gmac_s = products * static_cast<double>(num_tokens * shared.rows() * Shared::kCols);
  const double peak = activation == DType::kF32    ? machine.f32_gmac_s
                      : activation == DType::kBF16 ? machine.bf16_gmac_s
                                                   : machine.int8_gmac_s;
  state.counters["GB/s"] = gb_s;
  state.counters["GMAC/s"] = gmac_s;
  state.counters["read%"] = 100 * gb_s / machine.weights_gb_s;
  state.counters["mul%"] = 100 * gmac_s / peak;
  if (machine.tile_gmac_s > 0 && activation == DType::kI8Blocks) {
    state.counters["tile%"] = 100 * gmac_s / machine.tile_gmac_s;
  }
}

// Sequences of equal length, each with the same number of queries at its end, in the pool of a
// model with several layers. Blocks lie in order.
struct PagedCache {
  static constexpr int kBlockSize = 16;
  PagedCache(Ops& ops, int kv_heads, int head_dim, DType dtype, int64_t length, int num_queries,
             int num_seqs = 1, int layers = 1)
      : memory(ops) {
    const int64_t blocks = length / kBlockSize + 1;
    const int64_t side = static_cast<int64_t>(kv_heads) * kBlockSize * head_dim;
    const Tensor pool = memory.Zeros(dtype, {num_seqs * blocks, 2 * layers * side});
    view = {.base = static_cast<std::byte*>(pool.data),
            .block_stride = pool.row_stride,
            .k_offset = 0,
            .v_offset = static_cast<int64_t>(RowBytes(dtype, side)),
            .dtype = dtype,
            .block_size = kBlockSize,
            .num_kv_heads = kv_heads,
            .head_dim = head_dim};
    blocks_per_seq = static_cast<int32_t>(blocks);
    table.resize(static_cast<size_t>(num_seqs * blocks));
    std::iota(table.begin(), table.end(), 0);
    seq_lens.assign(static_cast<size_t>(num_seqs), static_cast<int32_t>(length));
    table_rows.resize(seq_lens.size());
    std::iota(table_rows.begin(), table_rows.end(), 0);
    for (int s = 0; s <= num_seqs; ++s) query_start_loc.push_back(s * num_queries);
  }
  KvLayerView Layer(int layer) const {
    KvLayerView one = view;
    one.k_offset += 2 * layer * view.v_offset;
    one.v_offset += 2 * layer * view.v_offset;
    return one;
  }
  std::unique_ptr<AttentionPlan> Plan(Ops& ops, Stream& stream, int heads) const {
    auto plan = ops.MakeAttentionPlan({.num_heads = heads,
                                       .num_kv_heads = view.num_kv_heads,
                                       .head_dim = view.head_dim,
                                       .block_size = kBlockSize,
                                       .kv_dtype = view.dtype,
                                       .max_seqs = static_cast<int32_t>(seq_lens.size()),
                                       .max_tokens = query_start_loc.back(),
                                       .max_blocks_per_seq = blocks_per_seq});
    CHECK_MSG(plan.ok(), plan.status().ToString());
    const auto view_of = [](const std::vector<int32_t>& values) {
      return Tensor(const_cast<int32_t*>(values.data()), DType::kI32,
                    Shape{static_cast<int64_t>(values.size())});
    };
    (*plan)->Fill(
        {.query_start_loc = query_start_loc,
         .seq_lens = seq_lens,
         .device_query_start_loc = view_of(query_start_loc),
         .device_seq_lens = view_of(seq_lens),
         .table_rows = view_of(table_rows),
         .block_tables = Tensor(const_cast<int32_t*>(table.data()), DType::kI32,
                                Shape{static_cast<int64_t>(seq_lens.size()), blocks_per_seq})},
        stream);
    return *std::move(plan);
  }

  Memory memory;
  KvLayerView view;
  int32_t blocks_per_seq = 0;
  std::vector<int32_t> query_start_loc, seq_lens, table, table_rows;
};

struct AttentionModel {
  const char* name;
  int heads, kv_heads, head_dim, layers;
};
constexpr AttentionModel kSmolLm2 = {"attention", 9, 3, 64, 30};
constexpr AttentionModel kLlama8b = {"attention_8b", 32, 8, 128, 32};

// All layers of a model, or as many as have 262,144 positions in all, more than any cache holds:
// range(0) sequences, each with range(1) queries at the end of a context of range(2) positions.
void AttentionBench(benchmark::State& state, const std::string& isa, int threads, DType dtype,
                    const AttentionModel& model) {
  const int heads = model.heads, kv_heads = model.kv_heads, head_dim = model.head_dim;
  const auto num_seqs = static_cast<int>(state.range(0));
  const auto num_queries = static_cast<int>(state.range(1));
  const int64_t length = state.range(2), num_tokens = num_seqs * num_queries;
  const auto layers = static_cast<int>(
      std::clamp<int64_t>((int64_t{1} << 18) / (num_seqs * length), 1, model.layers));
  const auto ops = MakeOps(isa, threads);
  const auto stream = ops->MakeStream();
  PagedCache cache(*ops, kv_heads, head_dim, dtype, length, num_queries, num_seqs, layers);
  const auto plan = cache.Plan(*ops, *stream, heads);
  Attention op;
  op.q = cache.memory.Floats({num_tokens, heads * head_dim});
  op.plan = plan.get();
  op.scale = 1 / std::sqrt(static_cast<float>(head_dim));
  op.out = cache.memory.Zeros(DType::kF32, {num_tokens, heads * head_dim});
  for (auto _ : state) {
    for (int layer = 0; layer < layers; ++layer) {
      op.cache = cache.Layer(layer);
      ops->Run(op, *stream);
    }
  }
  const auto bytes = static_cast<double>(RowBytes(dtype, head_dim));
  state.counters["B/s"] =
      PerSecond(2.0 * layers * kv_heads * bytes * static_cast<double>(num_seqs * length));
  state.counters["FLOP/s"] =
      PerSecond(4.0 * layers * heads * head_dim * static_cast<double>(num_tokens) *
                (static_cast<double>(length) - num_queries / 2.0));
}

// RoPE and KV cache writes of range(0) tokens in one layer.
void RopeBench(benchmark::State& state, const std::string& isa, int threads, DType dtype) {
  constexpr int kHeads = 9, kKvHeads = 3, kHeadDim = 64;
  const int64_t num_tokens = state.range(0);
  const auto ops = MakeOps(isa, threads);
  const auto stream = ops->MakeStream();
  PagedCache cache(*ops, kKvHeads, kHeadDim, dtype, num_tokens, 1);
  Memory& m = cache.memory;
  const Tensor qkv = m.Floats({num_tokens, (kHeads + 2 * kKvHeads) * kHeadDim});
  const RopeTable table = {.cos_sin = m.Floats({1, kHeadDim}, 0.70710678f), .rotary_dim = kHeadDim};
  RopeAndStore op;
  op.q = qkv.Cols(0, kHeads * kHeadDim);
  op.k = qkv.Cols(kHeads * kHeadDim, (kHeads + kKvHeads) * kHeadDim);
  op.v = qkv.Cols((kHeads + kKvHeads) * kHeadDim, qkv.cols());
  op.positions = m.Zeros(DType::kI32, {num_tokens});
  op.slot_mapping = m.Zeros(DType::kI64, {num_tokens});
  std::iota(static_cast<int64_t*>(op.slot_mapping.data),
            static_cast<int64_t*>(op.slot_mapping.data) + num_tokens, 0);
  op.rope = &table;
  op.cache = cache.view;
  for (auto _ : state) ops->Run(op, *stream);
  state.counters["tok/s"] = PerSecond(static_cast<double>(num_tokens));
}

// A decoder with SmolLM2-135M's shape. Its layers have equal weights, but each its own memory.
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
    slot_mapping_ = m.Zeros(DType::kI64, {num_tokens});
    for (int t = 0; t < num_tokens; ++t) {
      static_cast<int32_t*>(positions_.data)[t] = static_cast<int32_t>(context - num_tokens + t);
      static_cast<int64_t*>(slot_mapping_.data)[t] = context - num_tokens + t;
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
      rope.slot_mapping = slot_mapping_;
      rope.rope = &rope_;
      rope.cache = cache_.view;
      Run(rope);
      Run(Attention{.q = rope.q,
                    .cache = cache_.view,
                    .plan = plan_.get(),
                    .scale = 0.125f,
                    .sinks = {},
                    .slopes = {},
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
  Tensor positions_, slot_mapping_;
  RopeTable rope_;
};

// A step of range(0) tokens at the end of a context of range(1) positions.
void StackBench(benchmark::State& state, const std::string& isa, int threads, DType dtype) {
  const auto ops = MakeOps(isa, threads);
  Stack stack(*ops, dtype, state.range(1), static_cast<int>(state.range(0)));
  for (auto _ : state) stack.Step();
  state.counters["tok/s"] = PerSecond(static_cast<double>(state.range(0)));
}

void RegisterLinear(const std::string& isa, int all_threads, Shared& shared) {
  std::vector<int> counts = {1};
  if (all_threads > 1) counts.push_back(all_threads);
  for (const int threads : counts) {
    benchmark::RegisterBenchmark(fmt::format("machine/{}/threads:{}", isa, threads).c_str(),
                                 [=, &shared](benchmark::State& state) {
                                   MachineBench(state, shared.Machine(isa, threads));
                                 })
        ->Iterations(1);
  }
  for (const DType dtype :
       {DType::kQ4_K, DType::kQ5_K, DType::kQ6_K, DType::kQ8_0, DType::kQ4_0, DType::kQ4_1,
        DType::kIQ4_XS, DType::kMXFP4, DType::kBF16, DType::kF16, DType::kF32}) {
    for (const int threads : counts) {
      benchmark::RegisterBenchmark(
          fmt::format("linear/{}/{}/threads:{}", isa, Name(dtype), threads).c_str(),
          [=, &shared](benchmark::State& state) {
            LinearBench(state, shared, isa, threads, dtype);
          })
          ->Arg(1)
          ->Arg(8)
          ->Arg(32)
          ->Arg(256)
          ->UseRealTime()
          ->Unit(benchmark::kMillisecond);
    }
  }
}

void Register(int threads, Shared& shared) {
  for (const std::string& isa : CpuIsaNames()) {
    if (!MakeCpuOps({.threads = 1, .isa = isa}).ok()) continue;
    RegisterLinear(isa, threads, shared);
    for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kQ8_0}) {
      const auto attention = [&](const AttentionModel& model) {
        return benchmark::RegisterBenchmark(
                   fmt::format("{}/{}/{}", model.name, isa, Name(dtype)).c_str(),
                   [=](benchmark::State& state) {
                     AttentionBench(state, isa, threads, dtype, model);
                   })
            ->ArgNames({"seqs", "queries", "context"})
            ->UseRealTime()
            ->Unit(benchmark::kMillisecond);
      };
      attention(kSmolLm2)
          ->Args({1, 1, 512})
          ->Args({2, 1, 160})
          ->Args({8, 1, 160})
          ->Args({32, 1, 160})
          ->Args({32, 1, 600})
          ->Args({1, 1, 8192})
          ->Args({1, 512, 512})
          ->Args({1, 512, 4096});
      attention(kLlama8b)->Args({1, 1, 512})->Args({1, 1, 8192})->Args({1, 1, 32768});
      benchmark::RegisterBenchmark(
          fmt::format("rope_and_store/{}/{}", isa, Name(dtype)).c_str(),
          [=](benchmark::State& state) { RopeBench(state, isa, threads, dtype); })
          ->Arg(1)
          ->Arg(512)
          ->UseRealTime()
          ->Unit(benchmark::kMicrosecond);
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
  bool quick = false;
  constexpr std::string_view kThreads = "--threads=";
  char** const end = std::remove_if(argv + 1, argv + argc, [&](const char* argument) {
    const std::string_view text = argument;
    if (text.starts_with(kThreads)) threads = std::atoi(argument + kThreads.size());
    if (text == "--quick") quick = true;
    return text.starts_with(kThreads) || text == "--quick";
  });
  argc = static_cast<int>(end - argv);
  tokamak::Shared shared(quick);
  tokamak::Register(threads, shared);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
