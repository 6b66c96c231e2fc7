#include "cuda_latent.h"

#include <cmath>
#include <memory>

#include "cuda_paged_cache.h"
#include "ops/cuda/attention_plan.h"
#include "ops/cuda/latent_attention.h"

namespace tokamak::cuda {
namespace {

constexpr int kEntryDim = 576;
constexpr int kLatentDim = 512;
constexpr int kHeadDim = 128;  // of a key without its rotated part, and of a value
constexpr int kBlockSize = 16;

// Decoding: one query per sequence.
struct LatentCase {
  int num_heads, batch, context;
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
    weights_ = device.Allocate(kWeightLayers * weight_bytes());
    device.FillRandom(weights_, 5, 1);
    plan_ = Take(
        CudaAttentionPlan::Make({.num_heads = c.num_heads,
                                 .num_kv_heads = 1,
                                 .head_dim = kEntryDim,
                                 .block_size = kBlockSize,
                                 .kv_dtype = DType::kBF16,
                                 .max_seqs = c.batch,
                                 .max_tokens = c.batch,
                                 .max_blocks_per_seq = static_cast<int32_t>(cache_.seq_blocks()),
                                 .value_dim = kLatentDim,
                                 .values_in_keys = true},
                                {.narrow = device.num_sms()}, device.guard(), device.pinned()));
    cache_.Fill(*plan_, 1);
  }

  void Run() {
    const double bytes = 2.0 * case_.batch * case_.context * kEntryDim;
    const double flops =
        2.0 * case_.batch * case_.num_heads * case_.context * (kEntryDim + kLatentDim);
    Print("latent_attention", device_.Time(cache_.num_layers(), [&](int i) { Attend(i); }), bytes,
          flops);
    const double product = 2.0 * case_.batch * static_cast<double>(weight_bytes() / 2);
    Print("w_uk", device_.Time(kWeightLayers, [&](int i) { Multiply(i, /*queries=*/true); }),
          static_cast<double>(weight_bytes()), product);
    Print("w_uv", device_.Time(kWeightLayers, [&](int i) { Multiply(i, /*queries=*/false); }),
          static_cast<double>(weight_bytes()), product);
  }

 private:
  static constexpr int kWeightLayers = 4;

  int64_t num_rows() const { return int64_t{case_.batch} * case_.num_heads; }
  int64_t weight_bytes() const { return int64_t{case_.num_heads} * kLatentDim * kHeadDim * 2; }

  void Attend(int layer) {
    AttentionArgs args = cache_.Args(*plan_, layer);
    args.q = q_.data();
    args.q_bf16 = true;
    args.out = out_.data();
    args.out_bf16 = true;
    args.q_stride = int64_t{case_.num_heads} * kEntryDim;
    args.out_stride = int64_t{case_.num_heads} * kLatentDim;
    args.scale = 1 / std::sqrt(static_cast<float>(kEntryDim));
    args.group = case_.num_heads;
    CUDA_RUN(device_.guard(), LaunchLatentAttention(args, plan_->ctas(), device_.handle()));
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

  void Print(const char* op, const Timing& timing, double bytes, double flops) const {
    std::printf(
        "{\"op\": \"%s\", \"heads\": %d, \"batch\": %d, \"context\": %d, \"tflop_s\": %.1f, ", op,
        case_.num_heads, case_.batch, case_.context, flops / timing.median_us / 1e6);
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
    LatentBench(device, {.num_heads = 2, .batch = 2, .context = 20}).Run();
    return;
  }
  for (const int num_heads : {16, 64, 128}) {
    for (const int context : {512, 4096}) {
      for (const int batch : {1, 16, 64, 256}) {
        LatentBench(device, {.num_heads = num_heads, .batch = batch, .context = context}).Run();
      }
    }
  }
}

}  // namespace tokamak::cuda
