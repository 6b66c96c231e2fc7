// Runs each kernel of the CUDA backend in the emulator, on rows as models have them but few, and
// prints a line of JSON for each: what tools/kernel_memory.py makes docs/gpu-memory.md of.
//
// A line has the kernel's address in this program, for each kind of access the warps' accesses,
// what they cost and the least that they could (emulation/memory_trace.h), the bytes of all sectors
// that were read or written, and the least bytes that the operation must move. "places" has the
// costs by return address.
#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "cuda_device.h"
#include "cuda_memory.h"
#include "ops/cuda/emulation/memory_trace.h"
#include "ops/cuda/rank_kernels.h"
#include "ops/cuda/sample_layout.h"

namespace tokamak::cuda {
namespace {

using emulation::KernelMemory;
using emulation::MemoryCost;
using emulation::MemoryTrace;

constexpr uint64_t kSectorBytes = 32;

uint64_t OffsetOf(const void* code) {
  Dl_info info = {};
  CHECK(::dladdr(code, &info) != 0);
  return static_cast<uint64_t>(static_cast<const char*>(code) -
                               static_cast<const char*>(info.dli_fbase));
}

std::string ToJson(const MemoryCost& cost) {
  return fmt::format("[{}, {}, {}]", cost.accesses, cost.units, cost.least);
}

void Print(const void* kernel, const KernelMemory& memory, const LeastBytes& least) {
  uint64_t sectors = 0;
  for (const auto& [sector, uses] : memory.sectors) sectors += uses == 3 ? 2 : 1;
  std::vector<std::string> costs, places, bytes;
  for (const MemoryCost& cost : memory.costs) costs.push_back(ToJson(cost));
  for (const auto& [place, cost] : memory.places) {
    const auto& [code, kind] = place;
    places.push_back(
        fmt::format("[{}, {}, {}]", OffsetOf(code), static_cast<int>(kind), ToJson(cost)));
  }
  for (const auto& [name, count] : least) bytes.push_back(fmt::format("\"{}\": {}", name, count));
  fmt::print(
      "{{\"kernel\": {}, \"costs\": [{}], \"bytes\": {}, \"least\": {{{}}}, \"places\": [{}]}}\n",
      OffsetOf(kernel), fmt::join(costs, ", "), sectors * kSectorBytes, fmt::join(bytes, ", "),
      fmt::join(places, ", "));
}

}  // namespace

void MemoryBench::Run(const LeastBytes& least,
                      const std::function<cudaError_t(cudaStream_t)>& launch) {
  device_.Synchronize();
  const MemoryTrace trace;
  CUDA_RUN(device_.guard(), launch(device_.handle()));
  device_.Synchronize();
  for (const auto& [kernel, memory] : trace.kernels()) Print(kernel, memory, least);
}

namespace {

constexpr int64_t kTokens = 4;
constexpr int64_t kHidden = 1024;
constexpr int64_t kVocabulary = 16384;

void RunNorms(MemoryBench& bench) {
  const Buffer x = bench.Random(16 * kHidden * 2), residual = bench.Random(20480 * 4 * kTokens);
  const Buffer weight = bench.Random(20480 * 4), out = bench.Allocate(20480 * 4 * kTokens);
  const Buffer wide = bench.Random(20480 * 2 * kTokens);
  for (const int fours : {1, 2, 4, 0}) {  // 0: a row that is too long for them
    const int64_t cols = fours == 0 ? 20480 : kHidden;
    const NormArgs args = {.x = (fours == 0 ? wide : x).data(),
                           .residual = At<float>(residual),
                           .weight = At<float>(weight),
                           .out = out.data(),
                           .x_bf16 = true,
                           .out_bf16 = true,
                           .num_tokens = kTokens,
                           .cols = cols,
                           .x_stride = cols,
                           .residual_stride = cols,
                           .out_stride = cols,
                           .eps = 1e-5f,
                           .fours = std::max(fours, 1)};
    bench.Run({{fours == 0 ? "AddRmsNormLongKernel" : "AddRmsNormKernel",
                kTokens * cols * 12 + cols * 4}},
              [&](cudaStream_t stream) { return LaunchAddRmsNorm(args, stream); });
  }
  const LayerNormArgs args = {.x = x.data(),
                              .residual = At<float>(residual),
                              .weight = At<float>(weight),
                              .bias = At<float>(weight) + kHidden,
                              .out = out.data(),
                              .x_bf16 = true,
                              .out_bf16 = true,
                              .num_tokens = kTokens,
                              .cols = kHidden,
                              .x_stride = kHidden,
                              .residual_stride = kHidden,
                              .out_stride = kHidden,
                              .eps = 1e-5f};
  bench.Run({{"AddLayerNormKernel", kTokens * kHidden * 12 + 2 * kHidden * 4}},
            [&](cudaStream_t stream) { return LaunchAddLayerNorm(args, stream); });
}

void RunPointwise(MemoryBench& bench) {
  const int64_t count = kTokens * kHidden;
  const Buffer x = bench.Random(count * 8), y = bench.Random(count * 4);
  for (const bool bf16 : {true, false}) {
    const int64_t bytes = bf16 ? 2 : 4;
    for (const int fours : {1, 2}) {
      const GateArgs gate = {.gate_up = x.data(),
                             .out = y.data(),
                             .in_bf16 = bf16,
                             .out_bf16 = bf16,
                             .activation = Activation::kSilu,
                             .num_tokens = kTokens,
                             .width = kHidden,
                             .in_stride = 2 * kHidden,
                             .out_stride = kHidden,
                             .fours = fours};
      bench.Run({{"GateKernel", count * 3 * bytes}},
                [&](cudaStream_t stream) { return LaunchGate(gate, stream); });
    }
  }
  const PointwiseArgs mixed = {.x = x.data(),
                               .y = y.data(),
                               .x_bf16 = true,
                               .y_bf16 = false,
                               .num_tokens = kTokens,
                               .cols = kHidden,
                               .x_stride = kHidden,
                               .y_stride = kHidden,
                               .limit = 5};
  PointwiseArgs floats = mixed, halves = mixed, narrowing = mixed;
  floats.x_bf16 = false;
  halves.y_bf16 = narrowing.y_bf16 = true;
  narrowing.x_bf16 = false;
  PointwiseArgs in_place = floats;
  in_place.y = x.data();
  const std::string name = "PointwiseKernel";
  bench.Run({{name, count * 10}}, [&](auto stream) { return LaunchAddResidual(mixed, stream); });
  bench.Run({{name, count * 8}}, [&](auto stream) { return LaunchSoftcap(floats, stream); });
  bench.Run({{name, count * 8}}, [&](auto stream) { return LaunchClamp(in_place, stream); });
  bench.Run({{name, count * 4}}, [&](auto stream) { return LaunchActivate(halves, stream); });
  bench.Run({{name, count * 6}}, [&](auto stream) { return LaunchConvert(narrowing, stream); });
  const BiasArgs bias = {.bias = At<float>(y),
                         .out = At<float>(x),
                         .num_tokens = kTokens,
                         .rows = kHidden,
                         .out_stride = kHidden};
  bench.Run({{"AddBiasKernel", count * 8 + kHidden * 4}},
            [&](auto stream) { return LaunchAddBias(bias, stream); });
}

void RunCollectives(MemoryBench& bench) {
  constexpr int kRanks = 2;
  const int64_t count = kTokens * kHidden;
  const Buffer parts = bench.Random(kRanks * count * 4), own = bench.Allocate(count * 4);
  const Buffer x = bench.Random(2 * count * 4), out = bench.Allocate(2 * count * 4);
  const AddPartsArgs sum = {
      .parts = At<const float>(parts), .sum = At<float>(out), .count = count, .num_parts = kRanks};
  bench.Run({{"AddPartsKernel", (kRanks + 1) * count * 4}},
            [&](auto stream) { return LaunchAddParts(sum, stream); });
  for (const size_t bytes : {4, 2}) {
    const auto element = static_cast<int64_t>(bytes);
    const ColumnsArgs args = {.x = x.data(),
                              .out = out.data(),
                              .own = own.data(),
                              .parts = parts.data(),
                              .element_bytes = bytes,
                              .count = count,
                              .widest = kHidden,
                              .x_stride = 2 * kHidden,
                              .out_stride = 2 * kHidden,
                              .rank = 0,
                              .num_ranks = kRanks,
                              .columns = {{0, kHidden}, {kHidden, 2 * kHidden}}};
    bench.Run({{"PackColumnsKernel", 2 * count * element}},
              [&](auto stream) { return LaunchPackColumns(args, stream); });
    bench.Run({{"UnpackColumnsKernel", 2 * kRanks * count * element}},
              [&](auto stream) { return LaunchUnpackColumns(args, stream); });
  }
}

void RunRope(MemoryBench& bench) {
  constexpr int kHeads = 16, kKvHeads = 8, kDim = 128, kBlock = 16;
  constexpr int64_t kWidth = (kHeads + 2 * kKvHeads) * kDim, kPart = kKvHeads * kBlock * kDim * 2;
  const Buffer qkv = bench.Random(kTokens * kWidth * 4), cos_sin = bench.Random(64 * kDim * 4);
  const Buffer cache = bench.Random(2 * kPart), norm = bench.Random(kDim * 4);
  const Buffer positions = bench.Upload<int32_t>({3, 17, 40, 9});
  const Buffer slots = bench.Upload<int64_t>({3, 1, 8, 9});
  for (const bool normalizes : {false, true}) {
    for (const bool half_split : {false, true}) {
      RopeArgs args = {};
      auto* const q = At<uint16_t>(qkv);
      args.q = q;
      args.k = q + kHeads * kDim;
      args.v = q + (kHeads + kKvHeads) * kDim;
      args.bf16 = true;
      args.positions = At<int32_t>(positions);
      args.slot_mapping = At<int64_t>(slots);
      if (normalizes) args.q_norm = args.k_norm = At<float>(norm);
      args.norm_eps = 1e-6f;
      args.cos_sin = At<float>(cos_sin);
      args.rotary_dim = kDim;
      args.half_split = half_split;
      args.num_tokens = kTokens;
      args.q_stride = args.k_stride = args.v_stride = kWidth;
      args.cos_sin_stride = kDim;
      args.num_heads = kHeads;
      args.q_head_dim = kDim;
      args.cache = {.base = cache.data(),
                    .block_stride = 2 * kPart,
                    .k_offset = 0,
                    .v_offset = kPart,
                    .dtype = DType::kBF16,
                    .block_size = kBlock,
                    .num_kv_heads = kKvHeads,
                    .head_dim = kDim};
      const int64_t of_token = 2 * kWidth * 2 + kDim * 4 + 12;
      bench.Run({{"RopeKernel", kTokens * of_token + (normalizes ? kDim * 4 : 0)}},
                [&](auto stream) { return LaunchRopeAndStore(args, stream); });
    }
  }
}

// Two sequences: one begins with three tokens, the other has a state and adds a token to it.
void RunGatedDelta(MemoryBench& bench) {
  constexpr int64_t kStates = 2, kNew = 1, kKernel = 4, kBefore = kKernel - 1, kValueDim = 128;
  constexpr int kKeyHeads = 8, kValueHeads = 16, kMaxKeyDim = 256;
  constexpr int64_t kValues = kValueHeads * kValueDim;
  constexpr int64_t kChannels = 2 * kKeyHeads * kMaxKeyDim + kValues;
  const Buffer starts = bench.Upload<int32_t>({0, 3, 4}), lengths = bench.Upload<int32_t>({3, 9});
  const Buffer slots = bench.Upload<int32_t>({1, 0});
  const Buffer memory = bench.Random(kStates * kMaxKeyDim * kValues * 4);
  const Buffer x = bench.Random(kTokens * kChannels * 4), weight = bench.Random(kChannels * 16);
  const Buffer out = bench.Allocate(kTokens * kChannels * 4);
  StateArgs states = {.first = At<float>(memory),
                      .slot_stride = kBefore * kChannels,
                      .query_start_loc = At<int32_t>(starts),
                      .seq_lens = At<int32_t>(lengths),
                      .slots = At<int32_t>(slots),
                      .num_seqs = kStates};
  const ConvArgs conv = {.x = At<float>(x),
                         .weight = At<float>(weight),
                         .out = At<float>(out),
                         .states = states,
                         .channels = kChannels,
                         .kernel = kKernel,
                         .x_stride = kChannels,
                         .out_stride = kChannels};
  const int64_t conv_rows = 2 * kTokens + kKernel + kBefore * (2 * kStates - kNew);
  bench.Run({{"CausalConvKernel", conv_rows * kChannels * 4}},
            [&](auto stream) { return LaunchCausalConv(conv, stream); });
  const Buffer gates = bench.Random(2 * (kTokens + 1) * kValueHeads * 4);
  auto* const gate = At<float>(gates);
  for (const int32_t key_dim : {64, 128, kMaxKeyDim}) {
    const int64_t keys = kKeyHeads * key_dim;
    states.slot_stride = key_dim * kValues;
    auto* const q = At<float>(x);
    const DeltaArgs delta = {.q = q,
                             .k = q + keys,
                             .v = q + 2 * keys,
                             .a = gate,
                             .b = gate + kTokens * kValueHeads,
                             .rate = gate + 2 * kTokens * kValueHeads,
                             .bias = gate + (2 * kTokens + 1) * kValueHeads,
                             .out = At<float>(out),
                             .states = states,
                             .num_tokens = kTokens,
                             .value_dim = kValueDim,
                             .qk_stride = kChannels,
                             .v_stride = kChannels,
                             .gate_stride = kValueHeads,
                             .out_stride = kValues,
                             .key_heads = kKeyHeads,
                             .value_heads = kValueHeads,
                             .key_dim = key_dim,
                             .eps = 1e-6f,
                             .scale = 1,
                             .tiled = false};
    const int64_t norm_values = 4 * kTokens * keys + (4 * kTokens + 2) * kValueHeads;
    const int64_t rule_values =
        2 * kTokens * (keys + kValues + kValueHeads) + (2 * kStates - kNew) * key_dim * kValues;
    bench.Run({{"PrepareDeltaKernel", norm_values * 4}, {"DeltaKernel", rule_values * 4}},
              [&](auto stream) { return LaunchGatedDelta(delta, stream); });
  }
  for (const bool bf16 : {true, false}) {
    const OutputGateArgs args = {.x = x.data(),
                                 .gate = At<char>(x) + kTokens * kValues * 4,
                                 .norm = At<float>(weight),
                                 .out = out.data(),
                                 .in_bf16 = bf16,
                                 .out_bf16 = true,
                                 .silu = true,
                                 .num_tokens = kTokens,
                                 .cols = kValues,
                                 .head_dim = kValueDim,
                                 .x_stride = kValues,
                                 .gate_stride = kValues,
                                 .out_stride = kValues,
                                 .eps = 1e-6f};
    bench.Run({{"GateOutputKernel", kTokens * kValues * (bf16 ? 6 : 10) + kValueDim * 4}},
              [&](auto stream) { return LaunchGateOutput(args, stream); });
  }
}

void RunCopies(MemoryBench& bench) {
  constexpr int64_t kRow = kHidden * 2;
  const Buffer x = bench.Random(kTokens * kHidden * 4), out = bench.Allocate(32 * kHidden * 4);
  const Buffer ids = bench.Upload<int32_t>({3, 0, 2, 1, 7, 4, 6, 5});
  for (const bool bf16 : {true, false}) {
    const EmbedArgs embed = {.ids = At<int32_t>(ids),
                             .table = x.data(),
                             .out = At<float>(out),
                             .num_tokens = kTokens,
                             .cols = kHidden,
                             .out_stride = kHidden,
                             .table_bf16 = bf16};
    bench.Run({{"EmbedKernel", kTokens * (kHidden * (bf16 ? 6 : 8) + 4)}},
              [&](auto stream) { return LaunchEmbed(embed, stream); });
  }
  const GatherArgs gather = {.source = x.data(),
                             .rows = At<int32_t>(ids),
                             .out = out.data(),
                             .num_rows = kTokens,
                             .row_bytes = kRow,
                             .source_stride = kRow,
                             .out_stride = kRow};
  bench.Run({{"GatherKernel", kTokens * (2 * kRow + 4)}},
            [&](auto stream) { return LaunchGather(gather, stream); });
  const SpreadArgs spread = {.source = x.data(),
                             .rows = At<int32_t>(ids),
                             .out = out.data(),
                             .num_rows = kTokens,
                             .row_bytes = kRow,
                             .source_stride = kRow,
                             .out_stride = kRow,
                             .top_k = 2};
  bench.Run({{"SpreadKernel", kTokens * (3 * kRow + 8)}},
            [&](auto stream) { return LaunchSpread(spread, stream); });
  std::vector<int32_t> indices(256);
  std::iota(indices.begin(), indices.end(), 0);
  const Buffer order = bench.Upload(indices);
  const ScatterArgs scatter = {.indices = At<int32_t>(order),
                               .values = At<int32_t>(x),
                               .out = At<int32_t>(out),
                               .count = 256};
  bench.Run({{"ScatterKernel", 256 * 12}},
            [&](auto stream) { return LaunchScatter(scatter, stream); });
  CopyArgs copy = {};
  copy.source[0] = x.data();
  copy.source[1] = x.data() + kRow;
  copy.destination[0] = out.data();
  copy.destination[1] = out.data() + 2 * kRow;
  copy.bytes = kRow;
  copy.num_ranges = 2;
  bench.Run({{"CopyKernel", 4 * kRow}},
            [&](auto stream) { return LaunchCopyRanges(copy, stream); });
}

void RunFills(MemoryBench& bench) {
  const Buffer weight = bench.Random(64 * kHidden * 2), x = bench.Allocate(64 * kHidden * 2);
  const Buffer count = bench.Upload<int32_t>({0});
  bench.Run({{"RandomWeightKernel", 8 * kHidden * 2}}, [&](auto stream) {
    return LaunchRandomWeight({.seed = 1, .mean = 0, .deviation = 1}, 8, kHidden, At<uint16_t>(x),
                              stream);
  });
  const FillProbeArgs probe = {.x = At<uint16_t>(x),
                               .weight = At<uint16_t>(weight),
                               .num_tokens = 8,
                               .rows = 8,
                               .cols = kHidden};
  bench.Run({{"FillProbeKernel", 16 * kHidden * 2}},
            [&](auto stream) { return LaunchFillProbe(probe, stream); });
  for (const bool bf16 : {true, false}) {
    const CountDifferentArgs args = {.a = weight.data(),
                                     .b = weight.data() + 16 * kHidden,
                                     .count = 4 * kHidden,
                                     .bf16 = bf16,
                                     .different = At<int32_t>(count)};
    bench.Run({{"CountDifferentKernel", 8 * kHidden * (bf16 ? 2 : 4)}},
              [&](auto stream) { return LaunchCountDifferent(args, stream); });
  }
}

void RunSampler(MemoryBench& bench) {
  constexpr int kRows = 2, kTop = 5;
  constexpr int64_t kWords = kVocabulary / 32;
  const Buffer logits = bench.Random(kRows * kVocabulary * 4), last = bench.Allocate(64);
  const Buffer top = bench.Allocate(kRows * kTop * sizeof(TopToken));
  std::vector<SampleRecord> empty(kRows);
  for (int row = 0; row < kRows; ++row) empty[row].top = At<TopToken>(top) + row * kTop;
  const Buffer records = bench.Upload(empty);
  const Buffer counts = bench.Upload(std::vector<int32_t>(kVocabulary)),
               raw = bench.Allocate(kVocabulary * 4);
  const Buffer masks = bench.Upload(std::vector<uint32_t>(kWords, 0x7fffffff));
  const Buffer drafts = bench.Upload<int32_t>({7, kNoDraft}), drawn = bench.Allocate(kRows * 4);
  DeviceSlot plain = {};
  plain.temperature = plain.top_p = plain.typical_p = plain.repetition_penalty = 1;
  plain.top_logprobs = -1;
  DeviceSlot filtered = plain, edited = plain;
  filtered.top_k = 50;
  filtered.top_p = 0.9f;
  edited.top_logprobs = kTop;
  edited.counts = At<int32_t>(counts);
  edited.raw = At<float>(raw);
  const Buffer slots = bench.Upload<DeviceSlot>({plain, filtered, edited});
  for (int32_t slot = 0; slot < 3; ++slot) {
    SampleArgs args = {};
    args.logits = At<float>(logits);
    args.logits_stride = args.vocab_size = kVocabulary;
    args.slots = At<DeviceSlot>(slots);
    args.last = At<int32_t>(last);
    args.masks = At<uint32_t>(masks);
    args.mask_words = kWords;
    args.records = At<SampleRecord>(records);
    const int rows = slot == 2 ? 1 : kRows;
    for (int row = 0; row < rows; ++row) {
      args.rows[row] = {.slot = slot, .position = 7 + row, .mask = slot == 2 ? 0 : -1};
    }
    // Counts and the mask's word are read for every 32 logits, and one logit, in a sector, is
    // written.
    const int64_t edits = slot == 2 ? kVocabulary / 32 * (32 * 4 + 4 + 32) : 0;
    bench.Run({{"SampleKernel", rows * kVocabulary * 4 + edits}},
              [&](auto stream) { return LaunchSample(args, rows, stream); });
    if (slot != 0) continue;
    args.drafts = At<int32_t>(drafts);
    args.drawn = At<int32_t>(drawn);
    bench.Run({{"SampleKernel", rows * kVocabulary * 4}, {"AcceptKernel", rows * 8}},
              [&](auto stream) { return LaunchSample(args, rows, stream); });
  }
  ScoreArgs score = {.logits = At<float>(logits),
                     .logits_stride = kVocabulary,
                     .vocab_size = kVocabulary,
                     .top = kTop,
                     .records = At<SampleRecord>(records),
                     .tokens = {11, 12}};
  bench.Run({{"ScoreKernel", kRows * kVocabulary * 4}},
            [&](auto stream) { return LaunchScore(score, kRows, stream); });
  bench.Run({{"SetSlotKernel", sizeof(DeviceSlot) + 4}}, [&](auto stream) {
    return LaunchSetSlot(At<DeviceSlot>(slots), At<int32_t>(last), 1, plain, stream);
  });
  std::vector<int32_t> history(256);
  std::iota(history.begin(), history.end(), 0);
  const Buffer tokens = bench.Upload(history);
  bench.Run({{"CountTokensKernel", 256 * 8}}, [&](auto stream) {
    return LaunchCountTokens(At<int32_t>(tokens), 256, 200, 0, At<int32_t>(counts), stream);
  });
  FillArgs fill = {};
  fill.token_ids = At<int32_t>(tokens);
  fill.last = At<int32_t>(last);
  fill.num_fills = 8;
  for (int32_t i = 0; i < fill.num_fills; ++i) fill.fills[i] = {.slot = i, .index = i};
  bench.Run({{"FillTokensKernel", 64}},
            [&](auto stream) { return LaunchFillTokens(fill, stream); });
}

int Main() {
  Device device(/*small=*/true);
  MemoryBench bench(device);
  RunNorms(bench);
  RunPointwise(bench);
  RunCollectives(bench);
  RunRope(bench);
  RunGatedDelta(bench);
  RunCopies(bench);
  RunFills(bench);
  RunSampler(bench);
  RunProducts(bench);
  RunExperts(bench);
  RunAttention(bench);
  return 0;
}

}  // namespace
}  // namespace tokamak::cuda

int main() { return tokamak::cuda::Main(); }
