// A case is a graph of launches on the same buffers, as the layers of a model use them. With few
// tokens the buffers stay in the L2.
#include "cuda_elementwise.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <numeric>
#include <vector>

#include "base/ceil_div.h"
#include "ops/cuda/triton/loader.h"

namespace tokamak::cuda {
namespace {

constexpr int kLaunches = 32;
constexpr int64_t kVocabulary = 4096;
constexpr int64_t kPositions = 1024;
constexpr int kBlockSize = 16;

struct Model {
  const char* name;
  int64_t hidden, inner;
  int num_heads, num_kv_heads, head_dim;
  bool qk_norm;
};
constexpr Model kModels[] = {
    {"Llama-3.1-8B", 4096, 14336, 32, 8, 128, false},
    {"Qwen3-0.6B", 1024, 3072, 16, 8, 128, true},
};
constexpr Model kSmallModel = {"small", 64, 96, 2, 1, 64, true};

class ElementwiseBench {
 public:
  ElementwiseBench(Device& device, const Model& model, int64_t tokens)
      : device_(device), model_(model), tokens_(tokens) {
    const auto random = [&](int64_t elements) {  // in bf16
      Buffer buffer = device.Allocate(elements * 2);
      device.FillRandom(buffer, 1, 1);
      return buffer;
    };
    x_ = random(tokens * model.hidden);
    gate_up_ = random(tokens * 2 * model.inner);
    qkv_ = random(tokens * qkv_width());
    // Random bf16 pairs serve as f32 too: read as one, a pair has about the size of its second
    // value.
    residual_ = random(tokens * model.hidden * 2);
    weight_ = random(model.hidden * 2);
    cos_sin_ = random(kPositions * model.head_dim * 2);
    table_ = random(kVocabulary * model.hidden);
    out_ = device.Allocate(tokens * std::max(model.hidden, model.inner) * 4);
    cache_ = device.Allocate(CeilDiv(tokens, int64_t{kBlockSize}) * 2 * part_bytes());
    std::vector<int32_t> ids, rows(static_cast<size_t>(tokens));
    std::vector<int64_t> slots(static_cast<size_t>(tokens));
    for (int64_t t = 0; t < tokens; ++t) {
      ids.push_back(static_cast<int32_t>(t * 37 % kPositions));
    }
    std::iota(rows.rbegin(), rows.rend(), 0);
    std::iota(slots.begin(), slots.end(), 0);
    ids_ = device.Upload(ids);
    rows_ = device.Upload(rows);
    slots_ = device.Upload(slots);
  }

  // `triton`: null if this build has none.
  void Run(const TritonNorm* triton) {
    for (const int fours : {1, 2, 4}) Norm(fours);
    if (triton != nullptr) NormByTriton(*triton);
    for (const int fours : {1, 2}) Gate(fours);
    Rope();
    EmbedTokens();
    Gather();
  }

 private:
  template <typename T>
  static T* Data(const Buffer& buffer) {
    return reinterpret_cast<T*>(buffer.data());
  }
  int64_t qkv_width() const {
    return int64_t{model_.num_heads + 2 * model_.num_kv_heads} * model_.head_dim;
  }
  int64_t part_bytes() const {  // keys or values of a block
    return int64_t{model_.num_kv_heads} * kBlockSize * model_.head_dim * 2;
  }

  // `token_bytes`: what must be read and written for a token.
  template <typename Launch>
  void Print(const char* op, int fours, int64_t token_bytes, const Launch& launch) {
    const Timing timing =
        device_.Time(kLaunches, [&](int) { CUDA_RUN(device_.guard(), launch(device_.handle())); });
    std::printf("{\"op\": \"%s\", \"model\": \"%s\", \"tokens\": %d, ", op, model_.name,
                static_cast<int>(tokens_));
    if (fours > 0) std::printf("\"fours\": %d, ", fours);
    PrintTiming(timing, static_cast<double>(tokens_ * token_bytes));
  }

  NormArgs NormOf(int fours) const {
    return {.x = x_.data(),
            .residual = Data<float>(residual_),
            .weight = Data<float>(weight_),
            .out = out_.data(),
            .x_bf16 = true,
            .out_bf16 = true,
            .num_tokens = tokens_,
            .cols = model_.hidden,
            .x_stride = model_.hidden,
            .residual_stride = model_.hidden,
            .out_stride = model_.hidden,
            .eps = 1e-5f,
            .fours = fours};
  }
  void Norm(int fours) {
    Print("add_rms_norm", fours, model_.hidden * 12,
          [&](cudaStream_t stream) { return LaunchAddRmsNorm(NormOf(fours), stream); });
  }
  void NormByTriton(const TritonNorm& triton) {
    Print("add_rms_norm_by_triton", 0, model_.hidden * 12,
          [&](cudaStream_t stream) { return triton.Launch(NormOf(1), stream); });
  }
  void Gate(int fours) {
    const GateArgs args = {.gate_up = gate_up_.data(),
                           .out = out_.data(),
                           .in_bf16 = true,
                           .out_bf16 = true,
                           .activation = Activation::kSilu,
                           .num_tokens = tokens_,
                           .width = model_.inner,
                           .in_stride = 2 * model_.inner,
                           .out_stride = model_.inner,
                           .fours = fours};
    Print("gated_activation", fours, model_.inner * 6,
          [&](cudaStream_t stream) { return LaunchGate(args, stream); });
  }
  void Rope() {
    RopeArgs args = {};
    auto* qkv = Data<uint16_t>(qkv_);
    args.q = qkv;
    args.k = qkv + model_.num_heads * model_.head_dim;
    args.v = qkv + (model_.num_heads + model_.num_kv_heads) * model_.head_dim;
    args.bf16 = true;
    args.positions = Data<int32_t>(ids_);
    args.slot_mapping = Data<int64_t>(slots_);
    if (model_.qk_norm) args.q_norm = args.k_norm = Data<float>(weight_);
    args.norm_eps = 1e-6f;
    args.cos_sin = Data<float>(cos_sin_);
    args.rotary_dim = model_.head_dim;
    args.half_split = true;
    args.num_tokens = tokens_;
    args.q_stride = args.k_stride = args.v_stride = qkv_width();
    args.cos_sin_stride = model_.head_dim;
    args.num_heads = model_.num_heads;
    args.q_head_dim = model_.head_dim;
    args.cache = {.base = cache_.data(),
                  .block_stride = 2 * part_bytes(),
                  .k_offset = 0,
                  .v_offset = part_bytes(),
                  .dtype = DType::kBF16,
                  .block_size = kBlockSize,
                  .num_kv_heads = model_.num_kv_heads,
                  .head_dim = model_.head_dim};
    const int64_t heads_bytes = 4 * model_.num_heads + (2 + 2) * 2 * model_.num_kv_heads;
    Print("rope_and_store", 0, heads_bytes * model_.head_dim,
          [&](cudaStream_t stream) { return LaunchRopeAndStore(args, stream); });
  }
  void EmbedTokens() {
    const EmbedArgs args = {.ids = Data<int32_t>(ids_),
                            .table = table_.data(),
                            .out = Data<float>(out_),
                            .num_tokens = tokens_,
                            .cols = model_.hidden,
                            .out_stride = model_.hidden,
                            .table_bf16 = true};
    Print("embed", 0, model_.hidden * 6,
          [&](cudaStream_t stream) { return LaunchEmbed(args, stream); });
  }
  void Gather() {
    const GatherArgs args = {.source = x_.data(),
                             .rows = Data<int32_t>(rows_),
                             .out = out_.data(),
                             .num_rows = tokens_,
                             .row_bytes = model_.hidden * 2,
                             .source_stride = model_.hidden * 2,
                             .out_stride = model_.hidden * 2};
    Print("gather_rows", 0, model_.hidden * 4,
          [&](cudaStream_t stream) { return LaunchGather(args, stream); });
  }

  Device& device_;
  const Model model_;
  const int64_t tokens_;
  Buffer x_, residual_, weight_, gate_up_, qkv_, cos_sin_, table_, out_, cache_;
  Buffer ids_, rows_, slots_;
};

// Null, and says why, if this build or GPU has no such kernels.
std::unique_ptr<TritonNorm> LoadTritonNorm(Device& device) {
  int major = 0, minor = 0;
  CUDA_RUN(device.guard(), cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0));
  CUDA_RUN(device.guard(), cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, 0));
  auto triton = TritonNorm::Load(TritonKernels(), 10 * major + minor, device.guard().lost());
  if (triton.ok()) return *std::move(triton);
  std::fprintf(stderr, "cuda_kernels_bench: %s\n", triton.status().ToString().c_str());
  return nullptr;
}

}  // namespace

void BenchElementwise(Device& device) {
  const std::unique_ptr<TritonNorm> triton = LoadTritonNorm(device);
  if (device.small()) {
    ElementwiseBench(device, kSmallModel, 3).Run(triton.get());
    return;
  }
  for (const Model& model : kModels) {
    for (const int64_t tokens : {1, 64, 256, 8192}) {
      ElementwiseBench(device, model, tokens).Run(triton.get());
    }
  }
}

}  // namespace tokamak::cuda
