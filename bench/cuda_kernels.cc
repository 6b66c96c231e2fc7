// Times the CUDA kernels of products, of attention, of the operations between them and of experts,
// one by one, at the shapes of a few models. Prints a line of JSON for each case, with microseconds
// and the TB/s of what must be read.
//   cuda_kernels_bench [products | attention | decode | latent | elementwise | experts] [--small]
// decode: the cases of attention with one query per sequence. latent: latent attention, DeepSeek's.
//
// A case is a CUDA graph of many launches, each with weights or a cache of its own, so that the L2
// holds none of them. Kernels that the backend does not use yet are timed next to the ones that it
// uses and compared with them: "different" counts elements, "max_difference" is the largest one.
// --small runs every case once with small shapes, to see on the emulator that it works.
#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/ceil_div.h"
#include "cuda_device.h"
#include "cuda_elementwise.h"
#include "cuda_experts.h"
#include "cuda_latent.h"
#include "cuda_paged_cache.h"
#include "ops/cuda/attention_plan.h"
#include "ops/cuda/calls.h"
#include "ops/cuda/gemm.h"
#include "ops/cuda/kernels.h"
#include "ops/cuda/memory.h"
#include "ops/cuda/mma_attention.h"
#include "ops/cuda/skinny_gemm.h"
#include "ops/cuda/stream.h"
#include "ops/cuda/weight.h"

namespace tokamak::cuda {
namespace {

struct ProductShape {
  const char* model;
  const char* name;
  int64_t rows, cols;
};
constexpr ProductShape kProducts[] = {
    {"Llama-3.1-8B", "qkv", 6144, 4096},
    {"Llama-3.1-8B", "o", 4096, 4096},
    {"Llama-3.1-8B", "gate_up", 28672, 4096},
    {"Llama-3.1-8B", "down", 4096, 14336},
    {"Llama-3.1-8B", "lm_head", 128256, 4096},
    {"Qwen3-0.6B", "qkv", 4096, 1024},
    {"Qwen3-0.6B", "o", 1024, 2048},
    {"Qwen3-0.6B", "gate_up", 6144, 1024},
    {"Qwen3-0.6B", "down", 1024, 3072},
    {"Qwen3-0.6B", "lm_head", 151936, 1024},
    {"Qwen3-14B", "o", 5120, 5120},
    {"Qwen3-14B", "down", 5120, 17408},
};
constexpr int64_t kTokens[] = {1, 8, 16, 32, 64, 128};

// One shape: the present kernel, and the new one with every way of cutting it.
class ProductBench {
 public:
  ProductBench(Device& device, const ProductShape& shape) : device_(device), shape_(shape) {
    const int64_t bytes = shape.rows * shape.cols * 2;
    const int64_t copies = device.small() ? 2 : CeilDiv(kBeyondL2, bytes);
    for (int64_t i = 0; i < copies; ++i) {
      const Buffer data = device.Allocate(bytes);
      device.FillRandom(data, static_cast<uint64_t>(i), 0.02f);
      weights_.push_back(
          std::make_unique<CudaWeight>(shape.rows, shape.cols, DType::kBF16, data, DType::kBF16));
      weights_.back()->recipe = Take(device.gemm().MakeRecipe(*weights_.back()));
    }
    x_ = device.Allocate(kMaxTokens * shape.cols * 2);
    device.FillRandom(x_, 99, 1);
    expected_ = device.Allocate(kMaxTokens * shape.rows * 2);
    actual_ = device.Allocate(kMaxTokens * shape.rows * 2);
    expected_gated_ = device.Allocate(kMaxTokens * shape.rows);
    actual_gated_ = device.Allocate(kMaxTokens * shape.rows);
  }

  void Run(int64_t tokens) {
    Print(tokens, weights_[0]->recipe->fast ? "cublaslt" : "plain", "",
          device_.Time(num_weights(), [&](int i) { Present(tokens, i); }));
    for (const SkinnyTile tile : kSkinnyTiles) {
      // Other tiles read the weight often, or multiply many rows of zeros.
      if (tile.tokens > std::max<int64_t>(tokens, 8) || tokens > 4 * tile.tokens) continue;
      const Timing timing =
          device_.Time(num_weights(), [&](int i) { Skinny(tokens, i, tile, actual_, false); });
      PrintTile(tokens, "skinny_gemm", tile, expected_, actual_, timing);
      if (shape_.name == std::string_view("gate_up")) RunGateUp(tokens, tile);
    }
  }

 private:
  static constexpr int64_t kMaxTokens = 128;

  // The product and the activation, by a kernel each and by one for both.
  void RunGateUp(int64_t tokens, SkinnyTile tile) {
    const GateArgs gate = {.gate_up = actual_.data(),
                           .out = expected_gated_.data(),
                           .in_bf16 = true,
                           .out_bf16 = true,
                           .activation = Activation::kSilu,
                           .num_tokens = tokens,
                           .width = shape_.rows / 2,
                           .in_stride = shape_.rows,
                           .out_stride = shape_.rows / 2};
    const Timing apart = device_.Time(num_weights(), [&](int i) {
      Skinny(tokens, i, tile, actual_, false);
      CUDA_RUN(device_.guard(), LaunchGate(gate, device_.handle()));
    });
    PrintTile(tokens, "skinny_gemm, gated_activation", tile, expected_gated_, expected_gated_,
              apart);
    const Timing together =
        device_.Time(num_weights(), [&](int i) { Skinny(tokens, i, tile, actual_gated_, true); });
    PrintTile(tokens, "skinny_gemm with an activation", tile, expected_gated_, actual_gated_,
              together);
  }

  int num_weights() const { return static_cast<int>(weights_.size()); }

  void Present(int64_t tokens, int i) {
    const CudaWeight& weight = *weights_[static_cast<size_t>(i)];
    device_.gemm().Run({.x = Tensor(x_.data(), DType::kBF16, {tokens, shape_.cols}),
                        .weight = &weight,
                        .bias = {},
                        .out = Tensor(expected_.data(), DType::kBF16, {tokens, shape_.rows})},
                       weight, device_.handle());
  }
  void Skinny(int64_t tokens, int i, SkinnyTile tile, const Buffer& out, bool gated) {
    CUDA_RUN(device_.guard(),
             LaunchSkinnyGemm({.x = x_.data(),
                               .weight = weights_[static_cast<size_t>(i)]->data(),
                               .bias = nullptr,
                               .out = out.data(),
                               .out_bf16 = true,
                               .num_tokens = tokens,
                               .rows = shape_.rows,
                               .cols = shape_.cols,
                               .x_stride = shape_.cols,
                               .out_stride = gated ? shape_.rows / 2 : shape_.rows,
                               .gated = gated},
                              tile, 2 * device_.num_sms(), device_.form(), device_.handle()));
  }
  // Counts the elements of the last weight's outputs whose bits are not the expected ones.
  void PrintTile(int64_t tokens, std::string_view kernel, SkinnyTile tile, const Buffer& expected,
                 const Buffer& actual, const Timing& timing) {
    const bool gated = actual.size() < actual_.size();
    const int64_t count = tokens * (gated ? shape_.rows / 2 : shape_.rows);
    const auto a = device_.Download<uint16_t>(expected, count);
    const auto b = device_.Download<uint16_t>(actual, count);
    int64_t different = 0;
    for (size_t i = 0; i < a.size(); ++i) different += a[i] != b[i] ? 1 : 0;
    Print(tokens, kernel,
          "\"tile\": \"" + std::to_string(tile.rows) + " x " + std::to_string(tile.tokens) +
              "\", \"different\": " + std::to_string(different) + ", ",
          timing);
  }
  void Print(int64_t tokens, std::string_view kernel, const std::string& extra,
             const Timing& timing) const {
    std::printf(
        "{\"op\": \"product\", \"model\": \"%s\", \"name\": \"%s\", \"tokens\": %d, "
        "\"kernel\": \"%.*s\", %s",
        shape_.model, shape_.name, static_cast<int>(tokens), static_cast<int>(kernel.size()),
        kernel.data(), extra.c_str());
    PrintTiming(timing, static_cast<double>(shape_.rows * shape_.cols * 2));
  }

  Device& device_;
  const ProductShape shape_;
  std::vector<std::unique_ptr<CudaWeight>> weights_;
  Buffer x_, expected_, actual_;          // [kMaxTokens, cols or rows]
  Buffer expected_gated_, actual_gated_;  // [kMaxTokens, rows / 2]
};

struct AttentionCase {
  const char* model;
  int num_heads;
  int batch;
  int context;      // keys of a sequence, its last query's included
  int num_queries;  // of a sequence
  int num_kv_heads = 8;
  int head_dim = 128;
  bool causal = true;
  float softcap = 0;
  bool has_sinks = false;

  // Whether mma_attention.h has served it from the beginning.
  bool IsUsual() const { return (head_dim == 64 || head_dim == 128) && softcap == 0 && !has_sinks; }
};
constexpr int kBlockSize = 16;

std::vector<AttentionCase> AttentionCases(bool small) {
  std::vector<AttentionCase> cases;
  if (small) {
    return {{"Llama-3.1-8B", 32, 2, 20, 1},
            {"Qwen3-0.6B", 16, 1, 70, 5},
            {"Qwen3-0.6B", 16, 1, 60, 40},
            {"all-MiniLM-L6-v2", 1, 1, 64, 64, 1, 32, false},
            {"gpt-oss-20b", 8, 1, 70, 1, 1, 64, true, 0, true},
            {"Gemma-2-27B", 2, 1, 70, 1, 1, 128, true, 50},
            {"Gemma-3-4B", 2, 1, 70, 1, 1, 256},
            {"Phi-3-mini", 1, 1, 64, 64, 1, 96}};
  }
  for (const int context : {512, 4096, 32768}) {
    for (const int batch : {8, 32, 64}) cases.push_back({"Llama-3.1-8B", 32, batch, context, 1});
  }
  for (const int context : {4096, 32768}) cases.push_back({"Llama-3.1-8B", 32, 1, context, 1});
  for (const int batch : {1, 8, 64}) cases.push_back({"Qwen3-0.6B", 16, batch, 4096, 1});
  for (const int context : {128, 512, 2048}) {
    for (const int batch : {1, 4, 16}) {
      cases.push_back({"Qwen3-0.6B", 16, batch, context, 1});
      cases.push_back({"Llama-3.1-8B", 32, batch, context, 1});
    }
  }
  for (const int context : {45, 64, 144, 150, 192}) {  // tiles of 64 keys, some partly filled
    cases.push_back({"Qwen3-0.6B", 16, 1, context, 1});
    cases.push_back({"Llama-3.1-8B", 32, 256, context, 1});
  }
  cases.push_back({"Llama-3.1-8B", 32, 250, 750, 1});
  for (const int batch : {1, 8}) {
    cases.push_back({"Llama-3.1-8B", 32, batch, 512, 512});
    cases.push_back({"Llama-3.1-8B", 32, batch, 2048, 2048});
    cases.push_back({"Qwen3-0.6B", 16, batch, 2048, 2048});
  }
  cases.push_back({"Llama-3.1-8B", 32, 1, 4096, 64});
  cases.push_back({"Llama-3.1-8B", 32, 1, 4096, 512});
  cases.push_back({"Qwen3-0.6B", 16, 1, 4096, 512});
  for (const int context : {8, 32, 128, 256}) {
    cases.push_back({"all-MiniLM-L6-v2", 12, 64, context, context, 12, 32, false});
  }
  for (const auto& [context, queries] : {std::pair(4096, 1), std::pair(2048, 2048)}) {
    for (const int batch : {1, 32}) {
      if (batch > 1 && queries > 1) continue;
      cases.push_back({"gpt-oss-20b", 64, batch, context, queries, 8, 64, true, 0, true});
      cases.push_back({"Gemma-2-27B", 32, batch, context, queries, 16, 128, true, 50});
      cases.push_back({"Gemma-2-9B", 16, batch, context, queries, 8, 256, true, 50});
      cases.push_back({"Gemma-3-4B", 8, batch, context, queries, 4, 256});
      cases.push_back({"Phi-3-mini", 32, batch, context, queries, 32, 96});
    }
  }
  return cases;
}

// Sequences of one length in a cache of several layers, whose blocks are scattered.
class AttentionBench {
 public:
  AttentionBench(Device& device, const AttentionCase& c)
      : device_(device),
        case_(c),
        cache_(device,
               {.k_offset = 0,
                .v_offset = KeyBytes(c),
                .dtype = DType::kBF16,
                .block_size = kBlockSize,
                .num_kv_heads = c.num_kv_heads,
                .head_dim = c.head_dim},
               2 * KeyBytes(c), c.batch, c.context) {
    q_ = device.Allocate(out_elements() * 2);
    device.FillRandom(q_, 3, 1);
    sinks_ = device.Upload(std::vector<float>(static_cast<size_t>(c.num_heads), 1));
    expected_ = device.Allocate(out_elements() * 4);
    actual_ = device.Allocate(out_elements() * 4);
  }

  void Run() {
    if (case_.num_queries == 1 || device_.small() || !case_.IsUsual()) {
      RunBesidePlain();
    } else {
      MakePlan({.narrow = 2 * device_.num_sms()});
      Launch(0, Kernel::kMma, expected_, /*bf16=*/false);
      Print("mma_attention", "", Time(Kernel::kMma));
    }
    const bool has_wide = HasWideAttention(case_.head_dim) && device_.form() == KernelForm::kHopper;
    if (case_.num_queries > 16 && has_wide) RunWide();
  }

 private:
  static int64_t KeyBytes(const AttentionCase& c) {  // of a block
    return int64_t{c.num_kv_heads} * kBlockSize * c.head_dim * 2;
  }
  int64_t num_tokens() const { return int64_t{case_.batch} * case_.num_queries; }
  int64_t out_elements() const { return num_tokens() * case_.num_heads * case_.head_dim; }
  double Flops() const {
    const double queries = case_.num_queries;
    const double unseen = case_.causal ? queries * (queries - 1) / 2 : 0;
    const double pairs = queries * case_.context - unseen;  // with keys
    return 4.0 * case_.batch * case_.num_heads * case_.head_dim * pairs;
  }

  enum class Kernel { kPlain, kMma, kWide };

  void RunBesidePlain() {
    MakePlan({.narrow = 4 * device_.num_sms()});
    Launch(0, Kernel::kPlain, expected_, /*bf16=*/false);
    Print("plain", "", Time(Kernel::kPlain));
    for (const int ctas_per_sm : {2, 3, 4}) {
      MakePlan({.narrow = ctas_per_sm * device_.num_sms()});
      Launch(0, Kernel::kMma, actual_, /*bf16=*/false);
      char extra[96];
      std::snprintf(extra, sizeof(extra), "\"ctas_per_sm\": %d, \"max_difference\": %.2e, ",
                    ctas_per_sm, Compare().largest);
      Print("mma_attention", extra, Time(Kernel::kMma));
    }
  }
  // The kernel for prefills, whose bits are those of mma_attention.
  void RunWide() {
    MakePlan({.narrow = 2 * device_.num_sms()});
    Launch(0, Kernel::kMma, expected_, /*bf16=*/false);
    MakePlan({.narrow = 2 * device_.num_sms(), .wide = device_.num_sms()});
    if (plan_->wide_ctas() == 0) return;
    Launch(0, Kernel::kWide, actual_, /*bf16=*/false);
    char extra[64];
    std::snprintf(extra, sizeof(extra), "\"different\": %lld, ",
                  static_cast<long long>(Compare().different));
    Print("wide_attention", extra, Time(Kernel::kWide));
  }

  void MakePlan(const AttentionCtas& num_ctas) {
    plan_ = Take(
        CudaAttentionPlan::Make({.num_heads = case_.num_heads,
                                 .num_kv_heads = case_.num_kv_heads,
                                 .head_dim = case_.head_dim,
                                 .block_size = kBlockSize,
                                 .causal = case_.causal,
                                 .kv_dtype = DType::kBF16,
                                 .max_seqs = case_.batch,
                                 .max_tokens = static_cast<int32_t>(num_tokens()),
                                 .max_blocks_per_seq = static_cast<int32_t>(cache_.seq_blocks())},
                                num_ctas, device_.guard(), device_.pinned()));
    cache_.Fill(*plan_, case_.num_queries);
  }

  void Launch(int layer, Kernel kernel, const Buffer& out, bool bf16) {
    AttentionArgs args = cache_.Args(*plan_, layer);
    args.q = q_.data();
    args.q_bf16 = true;
    args.out = out.data();
    args.out_bf16 = bf16;
    args.q_stride = args.out_stride = int64_t{case_.num_heads} * case_.head_dim;
    args.scale = 1 / std::sqrt(static_cast<float>(case_.head_dim));
    args.group = case_.num_heads / case_.num_kv_heads;
    args.softcap = case_.softcap;
    if (case_.has_sinks) args.sinks = reinterpret_cast<const float*>(sinks_.data());
    const auto launch = kernel == Kernel::kPlain                ? &LaunchAttention
                        : kernel == Kernel::kWide               ? &LaunchWideAttention
                        : device_.form() == KernelForm::kHopper ? &LaunchMmaAttention
                                                                : &LaunchAmpereAttention;
    const int ctas = kernel == Kernel::kWide ? plan_->wide_ctas() : plan_->ctas();
    CUDA_RUN(device_.guard(), launch(args, ctas, device_.handle()));
  }
  Timing Time(Kernel kernel) {
    return device_.Time(cache_.num_layers(),
                        [&](int i) { Launch(i, kernel, actual_, /*bf16=*/true); });
  }

  // How the outputs of two kernels differ.
  struct Difference {
    double largest = 0;
    int64_t different = 0;  // elements
  };
  Difference Compare() {
    const std::vector<float> expected = device_.Download<float>(expected_, out_elements());
    const std::vector<float> actual = device_.Download<float>(actual_, out_elements());
    Difference found;
    for (size_t i = 0; i < actual.size(); ++i) {
      const double difference = std::abs(double{actual[i]} - expected[i]);
      if (!(difference <= found.largest)) found.largest = difference;
      found.different += difference == 0 ? 0 : 1;
    }
    return found;
  }
  void Print(const char* kernel, const char* extra, const Timing& timing) const {
    std::printf(
        "{\"op\": \"attention\", \"model\": \"%s\", \"batch\": %d, \"context\": %d, "
        "\"queries\": %d, \"kernel\": \"%s\", %s\"tflop_s\": %.1f, ",
        case_.model, case_.batch, case_.context, case_.num_queries, kernel, extra,
        Flops() / timing.median_us / 1e6);
    PrintTiming(timing, 4.0 * case_.batch * case_.context * case_.num_kv_heads * case_.head_dim);
  }

  Device& device_;
  const AttentionCase case_;
  PagedCache cache_;
  Buffer q_, sinks_, expected_, actual_;
  std::unique_ptr<CudaAttentionPlan> plan_;
};

int Main(int argc, char** argv) {
  bool small = false;
  std::string part;
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word == "--small") {
      small = true;
    } else if (part.empty() && (word == "products" || word == "attention" || word == "decode" ||
                                word == "latent" || word == "elementwise" || word == "experts")) {
      part = word;
    } else {
      std::fprintf(stderr,
                   "usage: cuda_kernels_bench [products | attention | decode | latent | "
                   "elementwise | experts] [--small]\n");
      return 2;
    }
  }
  Device device(small);
  if (part.empty() || part == "products") {
    for (const ProductShape& shape : kProducts) {
      ProductBench bench(device, small ? ProductShape{"none", "gate_up", 192, 328} : shape);
      for (const int64_t tokens : kTokens) {
        if (!small || tokens == 8) bench.Run(tokens);
      }
      if (small) break;
    }
  }
  if (part.empty() || part == "attention" || part == "decode") {
    for (const AttentionCase& c : AttentionCases(small)) {
      if (part != "decode" || c.num_queries == 1) AttentionBench(device, c).Run();
    }
  }
  const bool has_latent = device.form() == KernelForm::kHopper;
  if (has_latent && (part.empty() || part == "latent")) BenchLatent(device);
  if (part.empty() || part == "elementwise") BenchElementwise(device);
  if (part.empty() || part == "experts") BenchExperts(device);
  return 0;
}

}  // namespace
}  // namespace tokamak::cuda

int main(int argc, char** argv) { return tokamak::cuda::Main(argc, argv); }
