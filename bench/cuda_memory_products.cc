// Products, experts and attention of cuda_memory.cc.
#include <cmath>
#include <memory>
#include <numeric>
#include <vector>

#include "cuda_memory.h"
#include "cuda_paged_cache.h"
#include "ops/cuda/attention_plan.h"
#include "ops/cuda/expanded_attention.h"
#include "ops/cuda/grouped_gemm.h"
#include "ops/cuda/latent_attention.h"
#include "ops/cuda/mma_attention.h"
#include "ops/cuda/skinny_gemm.h"

namespace tokamak::cuda {
namespace {

void RunHeadProducts(MemoryBench& bench) {
  constexpr int64_t kHeads = 2, kTokens = 16, kCopied = 64, kCols = 128, kRows = 512;
  constexpr int64_t kStep = kCopied + kCols, kOut = kHeads * (kCopied + kRows);
  const Buffer x = bench.Random(kTokens * kHeads * kStep * 4);
  const Buffer weights = bench.Random(kHeads * kRows * kCols * 4);
  const Buffer out = bench.Allocate(kTokens * kOut * 4);
  for (const bool bf16 : {true, false}) {
    HeadLinearArgs args = {};
    args.copied = {.data = x.data(),
                   .bf16 = bf16,
                   .stride = kHeads * kStep,
                   .first = 0,
                   .step = kStep,
                   .cols = kCopied};
    args.x = args.copied;
    args.x.first = kCopied;
    args.x.cols = kCols;
    args.weights = weights.data();
    args.out = out.data();
    args.weights_bf16 = args.out_bf16 = bf16;
    args.num_tokens = kTokens;
    args.num_heads = kHeads;
    args.rows = kRows;
    args.out_stride = kOut;
    const int64_t bytes =
        (kTokens * (kHeads * kStep + kOut) + kHeads * kRows * kCols) * (bf16 ? 2 : 4);
    bench.Run({{"PlainHeadLinearKernel", bytes}},
              [&](auto stream) { return LaunchPlainHeadLinear(args, stream); });
    if (!bf16) continue;
    bench.Run({{"MmaHeadLinearKernel", bytes}},
              [&](auto stream) { return LaunchMmaHeadLinear(args, stream); });
  }
}

void RunRouter(MemoryBench& bench) {
  constexpr int32_t kExperts = 64, kTopK = 6;
  constexpr int64_t kTokens = 64, kHidden = 512, kPairs = kTokens * kTopK;
  const Buffer x = bench.Random(kPairs * kHidden * 4), gate = bench.Random(kExperts * kHidden * 4);
  const Buffer logits = bench.Allocate(kTokens * kExperts * 4);
  const Buffer ints = bench.Allocate((kPairs * 4 + kExperts + 1) * 4);
  const Buffer out = bench.Allocate(kTokens * kHidden * 4);
  const auto router = [&](int64_t tokens) {
    return RouterLinearArgs{.x = At<float>(x),
                            .weight = At<float>(gate),
                            .bias = nullptr,
                            .out = At<float>(logits),
                            .num_tokens = tokens,
                            .rows = kExperts,
                            .cols = kHidden,
                            .x_stride = kHidden,
                            .out_stride = kExperts};
  };
  const auto bytes = [](int64_t tokens) {
    return ((tokens + kExperts) * kHidden + tokens * kExperts) * 4;
  };
  for (const int64_t tokens : {int64_t{4}, kTokens}) {
    bench.Run({{"RouterLinearKernel", bytes(tokens)}},
              [&](auto stream) { return LaunchRouterLanes(router(tokens), stream); });
  }
  bench.Run({{"TiledRouterKernel", bytes(kTokens)}},
            [&](auto stream) { return LaunchRouterTiles(router(kTokens), stream); });
  auto* const base = At<int32_t>(ints);
  const RouteArgs route = {.logits = At<float>(logits),
                           .bias = nullptr,
                           .router = {.num_experts = kExperts, .top_k = kTopK, .normalize = true},
                           .experts = base,
                           .weights = reinterpret_cast<float*>(base + kPairs),
                           .tokens = base + 2 * kPairs,
                           .rows = base + 3 * kPairs,
                           .offsets = base + 4 * kPairs,
                           .num_tokens = kTokens,
                           .logits_stride = kExperts};
  bench.Run({{"ChooseKernel", (kTokens * kExperts + 2 * kPairs) * 4},
             {"GroupKernel", (3 * kPairs + kExperts + 1) * 4}},
            [&](auto stream) { return LaunchRoute(route, stream); });
  const CombineArgs combine = {.x = At<float>(x),
                               .rows = route.rows,
                               .weights = route.weights,
                               .shared = nullptr,
                               .shared_gate = nullptr,
                               .out = At<float>(out),
                               .num_tokens = kTokens,
                               .cols = kHidden,
                               .x_stride = kHidden,
                               .shared_stride = 0,
                               .shared_gate_stride = 0,
                               .out_stride = kHidden,
                               .top_k = kTopK,
                               .shared_bf16 = false};
  bench.Run({{"CombineKernel", ((kPairs + kTokens) * kHidden + 2 * kPairs) * 4}},
            [&](auto stream) { return LaunchCombine(combine, stream); });
}

constexpr int kBlockSize = 16;

// One launch of attention: sequences of one length, the queries at their ends.
struct AttentionCase {
  const char* kernel;
  cudaError_t (*launch)(const AttentionArgs& args, int ctas, cudaStream_t stream);
  bool is_wide;
  int num_heads, num_kv_heads, head_dim, batch, context, num_queries;
  bool is_latent = false;
  DType dtype = DType::kBF16;  // of the cache
};

void RunAttentionCase(MemoryBench& bench, const AttentionCase& c) {
  Device& device = bench.device();
  const int value_dim = c.is_latent ? 512 : c.head_dim;
  const auto element = static_cast<int64_t>(RowBytes(c.dtype, 1));
  const int64_t key_bytes =
      int64_t{c.num_kv_heads} * kBlockSize * c.head_dim * element;  // of a block
  KvLayerView view = {.k_offset = 0,
                      .v_offset = c.is_latent ? (c.head_dim - value_dim) * element : key_bytes,
                      .dtype = c.dtype,
                      .block_size = kBlockSize,
                      .num_kv_heads = c.num_kv_heads,
                      .head_dim = c.head_dim,
                      .value_dim = value_dim,
                      .values_in_keys = c.is_latent};
  const PagedCache cache(device, view, c.is_latent ? key_bytes : 2 * key_bytes, c.batch, c.context);
  const int64_t num_tokens = int64_t{c.batch} * c.num_queries, rows = num_tokens * c.num_heads;
  const Buffer q = bench.Random(rows * c.head_dim * 2), out = bench.Allocate(rows * value_dim * 2);
  AttentionCtas ctas = {.narrow = device.num_sms(), .wide = c.is_wide ? device.num_sms() : 0};
  if (c.is_wide && c.is_latent) {
    ctas.wide_rows = kWideLatentRows;
    ctas.wide_bytes = kWideLatentBytes;
  }
  const auto plan =
      Take(CudaAttentionPlan::Make({.num_heads = c.num_heads,
                                    .num_kv_heads = c.num_kv_heads,
                                    .head_dim = c.head_dim,
                                    .block_size = kBlockSize,
                                    .kv_dtype = c.dtype,
                                    .max_seqs = c.batch,
                                    .max_tokens = static_cast<int32_t>(num_tokens),
                                    .max_blocks_per_seq = static_cast<int32_t>(cache.seq_blocks()),
                                    .value_dim = value_dim,
                                    .values_in_keys = c.is_latent},
                                   ctas, device.guard(), device.pinned()));
  cache.Fill(*plan, c.num_queries);
  AttentionArgs args = cache.Args(*plan, 0);
  args.q = q.data();
  args.q_bf16 = args.out_bf16 = true;
  args.out = out.data();
  args.q_stride = int64_t{c.num_heads} * c.head_dim;
  args.out_stride = int64_t{c.num_heads} * value_dim;
  args.scale = 1 / std::sqrt(static_cast<float>(c.head_dim));
  args.group = c.num_heads / c.num_kv_heads;
  const int64_t entry_dim = c.is_latent ? c.head_dim : 2 * c.head_dim;
  const int64_t bytes = rows * (c.head_dim + value_dim) * 2 +
                        int64_t{c.batch} * (c.context * c.num_kv_heads * entry_dim * element +
                                            cache.seq_blocks() * 4 + 4);
  bench.Run({{c.kernel, bytes}}, [&](auto stream) {
    return c.launch(args, c.is_wide ? plan->wide_ctas() : plan->ctas(), stream);
  });
}

// A prompt of latents: its entries, and attention to it, decompressed.
void RunExpanded(MemoryBench& bench) {
  constexpr int kKeys = 128, kHeads = 2, kEntryDim = 576;
  constexpr int64_t kQueryBytes = int64_t{kKeys} * kHeads * kExpandedKeyDim * 2;
  constexpr int64_t kPartBytes = int64_t{kKeys} * kHeads * kExpandedValueDim * 2;
  static_assert(kExpandedNopeDim == kExpandedValueDim);
  const Buffer entries = bench.Random(kKeys * kEntryDim * 2);
  const Buffer segment = bench.Upload<ExpandedSegment>(
      {{.sequence = 0, .first_key = 0, .num_keys = kKeys, .first_row = 0}});
  for (const DType dtype : {DType::kBF16, DType::kF8E4M3}) {
    const int64_t row_bytes = kEntryDim * static_cast<int64_t>(RowBytes(dtype, 1));
    const PagedCache cache(bench.device(),
                           {.k_offset = 0,
                            .v_offset = row_bytes - 512 * static_cast<int64_t>(RowBytes(dtype, 1)),
                            .dtype = dtype,
                            .block_size = kBlockSize,
                            .num_kv_heads = 1,
                            .head_dim = kEntryDim,
                            .value_dim = 512,
                            .values_in_keys = true},
                           kBlockSize * row_bytes, 1, kKeys);
    const AttentionArgs args = cache.Args(0);
    bench.Run({{"GatherEntriesKernel", kKeys * (row_bytes + kEntryDim * 2)}}, [&](auto stream) {
      return LaunchGatherEntries({.cache = args.cache,
                                  .table_rows = args.table_rows,
                                  .block_tables = args.block_tables,
                                  .table_stride = args.table_stride,
                                  .segments = At<ExpandedSegment>(segment),
                                  .num_segments = 1,
                                  .num_rows = kKeys,
                                  .out = At<uint16_t>(entries)},
                                 stream);
    });
  }
  const Buffer q = bench.Random(kQueryBytes), keys = bench.Random(kPartBytes);
  const Buffer values = bench.Random(kPartBytes), out = bench.Allocate(kPartBytes);
  const Buffer unit = bench.Upload<AttentionUnit>({{.first_token = 0,
                                                    .first_position = 0,
                                                    .shared_last_key = 0,
                                                    .first_row = 0,
                                                    .num_rows = kKeys,
                                                    .sequence = 0,
                                                    .begin_split = 0,
                                                    .end_split = 1,
                                                    .begin_part = 0,
                                                    .end_part = 1,
                                                    .partial = 0}});
  AttentionArgs args = {};
  args.q = q.data();
  args.q_bf16 = args.out_bf16 = true;
  args.out = out.data();
  args.q_stride = kHeads * kExpandedKeyDim;
  args.out_stride = kHeads * kExpandedValueDim;
  args.cache.num_kv_heads = kHeads;
  args.scale = 0.1f;
  args.group = 1;
  bench.Run(
      {{"ExpandedAttentionKernel", kQueryBytes + kKeys * kExpandedRotatedDim * 2 + 3 * kPartBytes}},
      [&](auto stream) {
        return LaunchExpandedAttention(args,
                                       {.entries = At<uint16_t>(entries),
                                        .keys = At<uint16_t>(keys),
                                        .values = At<uint16_t>(values),
                                        .num_rows = kKeys,
                                        .entry_dim = kEntryDim,
                                        .units = At<AttentionUnit>(unit),
                                        .num_units = 1},
                                       2, stream);
      });
}

}  // namespace

void RunProducts(MemoryBench& bench) {
  constexpr int64_t kTokens = 64, kRows = 256, kCols = 512;
  const Buffer x = bench.Random(kTokens * kCols * 4), weight = bench.Random(kRows * kCols * 4);
  const Buffer out = bench.Allocate(kTokens * kRows * 4);
  for (const bool bf16 : {true, false}) {
    const PlainLinearArgs args = {.x = x.data(),
                                  .weight = weight.data(),
                                  .out = out.data(),
                                  .num_tokens = 16,
                                  .rows = kRows,
                                  .cols = kCols,
                                  .x_stride = kCols,
                                  .out_stride = kRows,
                                  .bf16 = bf16,
                                  .out_bf16 = bf16};
    bench.Run({{"PlainLinearKernel", (16 * (kCols + kRows) + kRows * kCols) * (bf16 ? 2 : 4)}},
              [&](auto stream) { return LaunchPlainLinear(args, stream); });
  }
  for (const SkinnyTile tile : kSkinnyTiles) {
    for (const bool gated : {false, true}) {
      const int64_t out_cols = gated ? kRows / 2 : kRows;
      const SkinnyGemmArgs args = {.x = x.data(),
                                   .weight = weight.data(),
                                   .bias = nullptr,
                                   .out = out.data(),
                                   .out_bf16 = true,
                                   .num_tokens = tile.tokens,
                                   .rows = kRows,
                                   .cols = kCols,
                                   .x_stride = kCols,
                                   .out_stride = out_cols,
                                   .gated = gated};
      const int64_t bytes = (tile.tokens * (kCols + out_cols) + kRows * kCols) * 2;
      bench.Run({{"SkinnyGemmKernel", bytes}}, [&](auto stream) {
        return LaunchSkinnyGemm(args, tile, 4, KernelForm::kHopper, stream);
      });
      bench.Run({{"AmpereSkinnyGemmKernel", bytes}}, [&](auto stream) {
        return LaunchSkinnyGemm(args, tile, 4, KernelForm::kAmpere, stream);
      });
    }
  }
  RunHeadProducts(bench);
}

void RunExperts(MemoryBench& bench) {
  RunRouter(bench);
  constexpr int32_t kExperts = 4;
  constexpr int64_t kRows = 256, kCols = 256, kPairs = 64;
  const Buffer x = bench.Random(kPairs * kCols * 4);
  const Buffer weights = bench.Random(kExperts * kRows * kCols * 4);
  const Buffer offsets = bench.Upload<int32_t>({0, 24, 24, 56, 64});  // an expert has no rows
  const Buffer out = bench.Allocate(kPairs * kRows * 4);
  const auto args = [&](bool bf16, bool gated) {
    return GroupedLinearArgs{.x = x.data(),
                             .weights = weights.data(),
                             .offsets = At<int32_t>(offsets),
                             .bias = nullptr,
                             .out = out.data(),
                             .num_rows = kPairs,
                             .rows = kRows,
                             .cols = kCols,
                             .x_stride = kCols,
                             .out_stride = gated ? kRows / 2 : kRows,
                             .groups = kExperts,
                             .bf16 = bf16,
                             .out_bf16 = bf16,
                             .gated = gated};
  };
  const auto bytes = [&](bool gated) {  // of elements
    return kPairs * (kCols + (gated ? kRows / 2 : kRows)) + (kExperts - 1) * kRows * kCols;
  };
  for (const bool bf16 : {true, false}) {
    bench.Run({{"PlainGroupedKernel", bytes(false) * (bf16 ? 2 : 4)}},
              [&](auto stream) { return LaunchPlainGroupedLinear(args(bf16, false), stream); });
  }
  for (const GroupedTileShape tile : kGroupedTiles) {
    for (const bool gated : {false, true}) {
      const bool is_wide = tile == kWideGroupedTile;
      const char* const kernel = is_wide ? "WideGroupedGemmKernel" : "GroupedGemmKernel";
      const auto run = [&](KernelForm form) {
        return [&, form](auto stream) {
          return LaunchGroupedGemm(args(true, gated), tile, 8, form, stream);
        };
      };
      bench.Run({{kernel, bytes(gated) * 2}}, run(KernelForm::kHopper));
      if (is_wide) continue;
      bench.Run({{"AmpereGroupedGemmKernel", bytes(gated) * 2}}, run(KernelForm::kAmpere));
    }
  }
}

void RunAttention(MemoryBench& bench) {
  for (const AttentionCase& c : {
           AttentionCase{"AttentionKernel", &LaunchAttention, false, 8, 2, 128, 2, 128, 1},
           AttentionCase{"AttentionKernel", &LaunchAttention, false, 8, 2, 128, 1, 32, 32},
           AttentionCase{"MmaAttentionKernel", &LaunchMmaAttention, false, 8, 2, 64, 2, 256, 1},
           AttentionCase{"MmaAttentionKernel", &LaunchMmaAttention, false, 16, 2, 128, 2, 256, 1},
           AttentionCase{"MmaAttentionKernel", &LaunchMmaAttention, false, 8, 2, 128, 1, 64, 16},
           AttentionCase{"AmpereMmaAttentionKernel", &LaunchAmpereAttention, false, 8, 2, 64, 2,
                         256, 1},
           AttentionCase{"AmpereMmaAttentionKernel", &LaunchAmpereAttention, false, 16, 2, 128, 2,
                         256, 1},
           AttentionCase{"AmpereMmaAttentionKernel", &LaunchAmpereAttention, false, 8, 2, 128, 1,
                         64, 16},
           AttentionCase{"Fp8MmaAttentionKernel", &LaunchMmaAttention, false, 8, 2, 64, 2, 256, 1,
                         false, DType::kF8E4M3},
           AttentionCase{"Fp8MmaAttentionKernel", &LaunchMmaAttention, false, 16, 2, 128, 2, 256, 1,
                         false, DType::kF8E4M3},
           AttentionCase{"AmpereFp8MmaAttentionKernel", &LaunchAmpereAttention, false, 8, 2, 64, 2,
                         256, 1, false, DType::kF8E4M3},
           AttentionCase{"AmpereFp8MmaAttentionKernel", &LaunchAmpereAttention, false, 16, 2, 128,
                         2, 256, 1, false, DType::kF8E4M3},
           AttentionCase{"WideAttentionKernel", &LaunchWideAttention, true, 4, 2, 64, 1, 128, 128},
           AttentionCase{"WideAttentionKernel", &LaunchWideAttention, true, 4, 2, 128, 1, 128, 128},
           AttentionCase{"Fp8WideAttentionKernel", &LaunchWideAttention, true, 4, 2, 64, 1, 128,
                         128, false, DType::kF8E4M3},
           AttentionCase{"Fp8WideAttentionKernel", &LaunchWideAttention, true, 4, 2, 128, 1, 128,
                         128, false, DType::kF8E4M3},
           AttentionCase{"MmaAttentionKernel", &LaunchMmaAttention, false, 4, 2, 32, 1, 64, 64},
           AttentionCase{"MmaAttentionKernel", &LaunchMmaAttention, false, 4, 2, 96, 1, 64, 16},
           AttentionCase{"MmaAttentionKernel", &LaunchMmaAttention, false, 4, 2, 256, 1, 64, 16},
           AttentionCase{"AmpereMmaAttentionKernel", &LaunchAmpereAttention, false, 4, 2, 32, 1, 64,
                         64},
           AttentionCase{"AmpereMmaAttentionKernel", &LaunchAmpereAttention, false, 4, 2, 96, 1, 64,
                         16},
           AttentionCase{"AmpereMmaAttentionKernel", &LaunchAmpereAttention, false, 4, 2, 256, 1,
                         64, 16},
           AttentionCase{"Fp8MmaAttentionKernel", &LaunchMmaAttention, false, 4, 2, 32, 1, 64, 64,
                         false, DType::kF8E4M3},
           AttentionCase{"Fp8MmaAttentionKernel", &LaunchMmaAttention, false, 4, 2, 256, 1, 64, 16,
                         false, DType::kF8E4M3},
           AttentionCase{"WideAttentionKernel", &LaunchWideAttention, true, 4, 2, 32, 1, 128, 128},
           AttentionCase{"WideAttentionKernel", &LaunchWideAttention, true, 4, 2, 96, 1, 128, 128},
           AttentionCase{"Fp8WideAttentionKernel", &LaunchWideAttention, true, 4, 2, 32, 1, 128,
                         128, false, DType::kF8E4M3},
           AttentionCase{"LatentAttentionKernel", &LaunchLatentAttention, false, 16, 1, 576, 1, 256,
                         1, true},
           AttentionCase{"AmpereLatentAttentionKernel", &LaunchAmpereLatentAttention, false, 16, 1,
                         576, 1, 256, 1, true},
           AttentionCase{"WideLatentAttentionKernel", &LaunchWideLatentAttention, true, 16, 1, 576,
                         1, 64, 18, true},
           AttentionCase{"Fp8LatentAttentionKernel", &LaunchLatentAttention, false, 16, 1, 576, 1,
                         256, 1, true, DType::kF8E4M3},
           AttentionCase{"AmpereFp8LatentAttentionKernel", &LaunchAmpereLatentAttention, false, 16,
                         1, 576, 1, 256, 1, true, DType::kF8E4M3},
           AttentionCase{"Fp8WideLatentAttentionKernel", &LaunchWideLatentAttention, true, 16, 1,
                         576, 1, 64, 18, true, DType::kF8E4M3},
       }) {
    RunAttentionCase(bench, c);
  }
  RunExpanded(bench);
}

}  // namespace tokamak::cuda
