#include "cuda_latent.h"

#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "cuda_paged_cache.h"
#include "ops/cuda/attention_plan.h"
#include "ops/cuda/expanded_attention.h"
#include "ops/cuda/latent_attention.h"

namespace tokamak::cuda {
namespace {

constexpr int kEntryDim = 576;
constexpr int kLatentDim = 512;
constexpr int kHeadDim = 128;  // of a key without its rotated part, and of a value
constexpr int kBlockSize = 16;

struct LatentCase {
  int num_heads, batch, context;
  int num_queries = 1;  // per sequence
};

class LatentBench {
 public:
  LatentBench(Device& device, const LatentCase& c)
      : device_(device),
        case_(c),
        cache_(device,
               {.k_offset = 0,
                .v_offset = (kEntryDim - kLatentDim) * 2,
                .dtype = DType::kBF16,
                .block_size = kBlockSize,
                .num_kv_heads = 1,
                .head_dim = kEntryDim,
                .value_dim = kLatentDim,
                .values_in_keys = true},
               int64_t{kBlockSize} * kEntryDim * 2, c.batch, c.context) {
    q_ = device.Allocate(num_rows() * kEntryDim * 2);
    device.FillRandom(q_, 3, 1);
    out_ = device.Allocate(num_rows() * kEntryDim * 2);
  }

  void RunDecode() {
    weights_ = device_.Allocate(kWeightLayers * weight_bytes());
    device_.FillRandom(weights_, 5, 1);
    MakePlan({.narrow = device_.num_sms()});
    Print("latent_attention", Time(/*wide=*/false), bytes(), Flops());
    const double product = 2.0 * case_.batch * static_cast<double>(weight_bytes() / 2);
    Print("w_uk", device_.Time(kWeightLayers, [&](int i) { Multiply(i, /*queries=*/true); }),
          static_cast<double>(weight_bytes()), product);
    Print("w_uv", device_.Time(kWeightLayers, [&](int i) { Multiply(i, /*queries=*/false); }),
          static_cast<double>(weight_bytes()), product);
  }
  // Both kernels give the same bits.
  void RunPrompt() {
    MakePlan({.narrow = device_.num_sms()});
    Print("latent_attention", Time(/*wide=*/false), bytes(), Flops());
    if (device_.form() != KernelForm::kHopper) return;
    Attend(0, /*wide=*/false);
    Buffer expected = device_.Allocate(num_rows() * kEntryDim * 2);
    std::swap(out_, expected);
    MakePlan({.narrow = device_.num_sms(),
              .wide = device_.num_sms(),
              .wide_rows = kWideLatentRows,
              .wide_bytes = kWideLatentBytes});
    const Timing timing = Time(/*wide=*/true);
    Attend(0, /*wide=*/true);
    Print("wide_latent_attention", timing, bytes(), Flops(), CountDifferent(expected));
  }
  // Attention to the same positions, decompressed, without the products that decompress them.
  void RunExpanded() {
    const int64_t rows = num_keys(), width = rows * case_.num_heads * kHeadDim;
    const auto chunk_keys = static_cast<int32_t>(CeilDiv(rows, kSplitKeys) * kSplitKeys);
    MakePlan({.narrow = device_.num_sms()}, {.min_queries = kMinExpandedQueries,
                                             .nope_dim = kHeadDim,
                                             .value_dim = kHeadDim,
                                             .chunk_keys = chunk_keys});
    const Buffer entries = device_.Allocate(rows * kEntryDim * 2);
    const Buffer keys = device_.Allocate(width * 2), values = device_.Allocate(width * 2);
    device_.FillRandom(keys, 7, 1);
    device_.FillRandom(values, 9, 1);
    const Buffer out = device_.Allocate(num_rows() * kHeadDim * 2);
    const auto at = [](const Buffer& b) { return reinterpret_cast<uint16_t*>(b.data()); };
    const Timing gather = device_.Time(cache_.num_layers(), [&](int i) {
      const AttentionArgs args = cache_.Args(*plan_, i);
      CUDA_RUN(device_.guard(),
               LaunchGatherEntries({.cache = args.cache,
                                    .table_rows = args.table_rows,
                                    .block_tables = args.block_tables,
                                    .table_stride = args.table_stride,
                                    .segments = plan_->segments(),
                                    .num_segments = plan_->chunks()[0].num_segments,
                                    .num_rows = plan_->chunks()[0].num_rows,
                                    .out = at(entries)},
                                   device_.handle()));
    });
    Print("gather_entries", gather, 2 * bytes(), 0);
    AttentionArgs args = cache_.Args(*plan_, 0);
    args.q = q_.data();
    args.q_bf16 = true;
    args.out = out.data();
    args.out_bf16 = true;
    args.q_stride = int64_t{case_.num_heads} * kExpandedKeyDim;
    args.out_stride = int64_t{case_.num_heads} * kExpandedValueDim;
    args.scale = 1 / std::sqrt(static_cast<float>(kExpandedKeyDim));
    args.group = 1;
    args.cache.num_kv_heads = case_.num_heads;
    const PlannedChunk& chunk = plan_->chunks()[0];
    const Timing attention = device_.Time(1, [&](int) {
      CUDA_RUN(device_.guard(), LaunchExpandedAttention(args,
                                                        {.entries = at(entries),
                                                         .keys = at(keys),
                                                         .values = at(values),
                                                         .num_rows = chunk.num_rows,
                                                         .entry_dim = kEntryDim,
                                                         .units = plan_->expanded_units(),
                                                         .num_units = chunk.num_units},
                                                        device_.num_sms(), device_.handle()));
    });
    Print("expanded_attention", attention, 4.0 * static_cast<double>(width),
          Flops() / (kEntryDim + kLatentDim) * (kExpandedKeyDim + kExpandedValueDim));
  }

 private:
  static constexpr int kWeightLayers = 4;

  int64_t num_tokens() const { return int64_t{case_.batch} * case_.num_queries; }
  int64_t num_keys() const { return int64_t{case_.batch} * case_.context; }
  int64_t num_rows() const { return num_tokens() * case_.num_heads; }
  double bytes() const { return 2.0 * case_.batch * case_.context * kEntryDim; }
  // Counts the keys that queries see, which are those up to their own position.
  double Flops() const {
    const double keys = case_.context - (case_.num_queries - 1) / 2.0;
    return 2.0 * static_cast<double>(num_rows()) * keys * (kEntryDim + kLatentDim);
  }
  int64_t weight_bytes() const { return int64_t{case_.num_heads} * kLatentDim * kHeadDim * 2; }

  void MakePlan(const AttentionCtas& num_ctas, const LatentExpansion& expansion = {}) {
    plan_ = Take(
        CudaAttentionPlan::Make({.num_heads = case_.num_heads,
                                 .num_kv_heads = 1,
                                 .head_dim = kEntryDim,
                                 .block_size = kBlockSize,
                                 .kv_dtype = DType::kBF16,
                                 .max_seqs = case_.batch,
                                 .max_tokens = static_cast<int32_t>(num_tokens()),
                                 .max_blocks_per_seq = static_cast<int32_t>(cache_.seq_blocks()),
                                 .value_dim = kLatentDim,
                                 .values_in_keys = true,
                                 .expansion = expansion},
                                num_ctas, device_.guard(), device_.pinned()));
    cache_.Fill(*plan_, case_.num_queries);
  }

  void Attend(int layer, bool wide) {
    AttentionArgs args = cache_.Args(*plan_, layer);
    args.q = q_.data();
    args.q_bf16 = true;
    args.out = out_.data();
    args.out_bf16 = true;
    args.q_stride = int64_t{case_.num_heads} * kEntryDim;
    args.out_stride = int64_t{case_.num_heads} * kLatentDim;
    args.scale = 1 / std::sqrt(static_cast<float>(kEntryDim));
    args.group = case_.num_heads;
    if (wide) {
      CUDA_RUN(device_.guard(),
               LaunchWideLatentAttention(args, plan_->wide_ctas(), device_.handle()));
      return;
    }
    const auto launch = device_.form() == KernelForm::kHopper ? &LaunchLatentAttention
                                                              : &LaunchAmpereLatentAttention;
    CUDA_RUN(device_.guard(), launch(args, plan_->ctas(), device_.handle()));
  }
  Timing Time(bool wide) {
    return device_.Time(cache_.num_layers(), [&](int i) { Attend(i, wide); });
  }
  // The number of pairs of neighbouring elements of the first layer's output that differ between
  // out_ and `expected`.
  int32_t CountDifferent(const Buffer& expected) {
    const Buffer different = device_.Upload(std::vector<int32_t>{0});
    CUDA_RUN(device_.guard(),
             LaunchCountDifferent({.a = expected.data(),
                                   .b = out_.data(),
                                   .count = num_rows() * kLatentDim / 2,
                                   .bf16 = false,
                                   .different = reinterpret_cast<int32_t*>(different.data())},
                                  device_.handle()));
    return device_.Download<int32_t>(different, 1)[0];
  }

  // The heads' products: of queries, which go to latents, or of latents, which go to values.
  void Multiply(int layer, bool queries) {
    const int64_t rotated = queries ? kEntryDim - kLatentDim : 0;
    const int64_t cols = queries ? kHeadDim : kLatentDim;
    const int64_t rows = queries ? kLatentDim : kHeadDim;
    const int64_t step = rotated + cols;
    HeadLinearArgs args = {};
    args.copied = {.data = q_.data(),
                   .bf16 = true,
                   .stride = case_.num_heads * step,
                   .first = 0,
                   .step = step,
                   .cols = rotated};
    args.x = args.copied;
    args.x.first = rotated;
    args.x.cols = cols;
    args.weights = weights_.data() + layer * weight_bytes();
    args.out = out_.data();
    args.weights_bf16 = args.out_bf16 = true;
    args.num_tokens = case_.batch;
    args.num_heads = case_.num_heads;
    args.rows = rows;
    args.out_stride = case_.num_heads * (rotated + rows);
    CUDA_RUN(device_.guard(), LaunchMmaHeadLinear(args, device_.handle()));
  }

  void Print(const char* op, const Timing& timing, double bytes, double flops,
             int32_t different = 0) const {
    std::printf(
        "{\"op\": \"%s\", \"heads\": %d, \"batch\": %d, \"context\": %d, \"queries\": %d, "
        "\"different\": %d, \"tflop_s\": %.1f, ",
        op, case_.num_heads, case_.batch, case_.context, case_.num_queries, different,
        flops / timing.median_us / 1e6);
    PrintTiming(timing, bytes);
  }

  Device& device_;
  const LatentCase case_;
  PagedCache cache_;
  Buffer q_, out_, weights_;
  std::unique_ptr<CudaAttentionPlan> plan_;
};

}  // namespace

void BenchLatent(Device& device) {
  if (device.small()) {
    LatentBench(device, {.num_heads = 2, .batch = 2, .context = 20}).RunDecode();
    const LatentCase prompt = {.num_heads = 4, .batch = 1, .context = 20, .num_queries = 18};
    LatentBench(device, prompt).RunPrompt();
    LatentBench(device, prompt).RunExpanded();
    return;
  }
  for (const int num_heads : {16, 64, 128}) {
    for (const int context : {512, 4096}) {
      for (const int batch : {1, 16, 64, 256}) {
        LatentBench(device, {.num_heads = num_heads, .batch = batch, .context = context})
            .RunDecode();
      }
    }
  }
  for (const LatentCase& prompts :
       {LatentCase{.num_heads = 16, .batch = 1, .context = 128, .num_queries = 128},
        LatentCase{.num_heads = 16, .batch = 16, .context = 512, .num_queries = 512},
        LatentCase{.num_heads = 16, .batch = 4, .context = 2048, .num_queries = 2048},
        LatentCase{.num_heads = 16, .batch = 1, .context = 8192, .num_queries = 2048},
        LatentCase{.num_heads = 16, .batch = 1, .context = 16384, .num_queries = 8192},
        LatentCase{.num_heads = 128, .batch = 1, .context = 2048, .num_queries = 2048}}) {
    LatentBench(device, prompts).RunPrompt();
    LatentBench(device, prompts).RunExpanded();
  }
}

}  // namespace tokamak::cuda
