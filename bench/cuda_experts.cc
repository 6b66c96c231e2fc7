// A case is a graph of launches, each with the tokens of another random routing, so that with few
// tokens the L2 holds few of the experts that a launch reads. "tb_s" counts the weights of the
// experts that have tokens; the memory's rate limits it. "tflop_s" is limited by tensor cores, and
// for routers by f32 arithmetic.
#include "cuda_experts.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <numeric>
#include <random>
#include <vector>

#include "ops/cuda/grouped_gemm.h"

namespace tokamak::cuda {
namespace {

constexpr int kRoutings = 12;

struct Model {
  const char* name;
  int32_t experts, top_k;
  int64_t hidden, inner;
};
constexpr Model kModel = {"Qwen3-30B-A3B", 128, 8, 2048, 768};
constexpr Model kFewerExperts = {"DeepSeek-V2-Lite", 64, 6, 2048, 1408};
constexpr Model kSmallModel = {"small", 6, 2, 64, 40};

class ExpertsBench {
 public:
  ExpertsBench(Device& device, const Model& model, int64_t tokens)
      : device_(device), model_(model), tokens_(tokens) {
    std::mt19937 random(1);
    std::vector<int32_t> experts(static_cast<size_t>(model.experts));
    std::iota(experts.begin(), experts.end(), 0);
    for (int i = 0; i < kRoutings; ++i) {
      std::vector<int32_t> offsets(experts.size() + 1);
      for (int64_t t = 0; t < tokens; ++t) {
        std::shuffle(experts.begin(), experts.end(), random);
        for (int j = 0; j < model.top_k; ++j) {
          ++offsets[static_cast<size_t>(experts[static_cast<size_t>(j)]) + 1];
        }
      }
      touched_ += static_cast<double>(std::count_if(offsets.begin(), offsets.end(),
                                                    [](int32_t count) { return count > 0; })) /
                  kRoutings;
      std::partial_sum(offsets.begin(), offsets.end(), offsets.begin());
      offsets_.push_back(device.Upload(offsets));
    }
  }

  void Run(bool products) {
    RouteAndCombine();
    if (!products) return;
    Product("gate_up", 2 * model_.inner, model_.hidden, /*out_bf16=*/true);
    Product("gate_up and silu", 2 * model_.inner, model_.hidden, /*out_bf16=*/true, /*gated=*/true);
    Product("down", model_.hidden, model_.inner, /*out_bf16=*/false);
  }

 private:
  int64_t num_rows() const { return tokens_ * model_.top_k; }
  Buffer Random(int64_t bf16_values) {
    Buffer buffer = device_.Allocate(bf16_values * 2);
    device_.FillRandom(buffer, 1, 1);
    return buffer;
  }

  void Product(const char* name, int64_t rows, int64_t cols, bool out_bf16, bool gated = false) {
    const Buffer weights = Random(model_.experts * rows * cols), x = Random(num_rows() * cols);
    const Buffer out = device_.Allocate(num_rows() * rows * 4);
    const auto args = [&](int i) {
      return GroupedLinearArgs{
          .x = x.data(),
          .weights = weights.data(),
          .offsets = reinterpret_cast<const int32_t*>(offsets_[static_cast<size_t>(i)].data()),
          .bias = nullptr,
          .out = out.data(),
          .num_rows = num_rows(),
          .rows = rows,
          .cols = cols,
          .x_stride = cols,
          .out_stride = gated ? rows / 2 : rows,
          .groups = model_.experts,
          .bf16 = true,
          .out_bf16 = out_bf16,
          .gated = gated};
    };
    const auto print = [&](const char* kernel, GroupedTileShape tile, const Timing& timing) {
      std::printf(
          "{\"op\": \"experts\", \"model\": \"%s\", \"name\": \"%s\", \"tokens\": %d, "
          "\"touched\": %.1f, \"kernel\": \"%s\", \"tile\": \"%d x %d\", \"chosen\": %s, "
          "\"tflop_s\": %.1f, ",
          model_.name, name, static_cast<int>(tokens_), touched_, kernel, tile.rows, tile.tokens,
          tile == ChooseGroupedTile(num_rows(), model_.experts, /*can_be_wide=*/true) ? "true"
                                                                                      : "false",
          2.0 * static_cast<double>(num_rows() * rows * cols) / timing.median_us / 1e6);
      PrintTiming(timing, touched_ * static_cast<double>(rows * cols * 2));
    };
    for (const GroupedTileShape tile : kGroupedTiles) {
      if (num_rows() > 16 * model_.experts * tile.tokens) continue;  // reads weights too often
      if (tile == kWideGroupedTile && device_.form() != KernelForm::kHopper) continue;
      print("grouped_gemm", tile, device_.Time(kRoutings, [&](int i) {
        CUDA_RUN(device_.guard(),
                 LaunchGroupedGemm(args(i), tile, GroupedCtasPerSm(tile) * device_.num_sms(),
                                   device_.form(), device_.handle()));
      }));
    }
    if (tokens_ > 64 || gated) return;
    print("plain", {}, device_.Time(kRoutings, [&](int i) {
      CUDA_RUN(device_.guard(), LaunchPlainGroupedLinear(args(i), device_.handle()));
    }));
  }

  void RouteAndCombine() {
    // Random bf16 pairs serve as f32 too: read as one, a pair has about the size of its second
    // value.
    const Buffer hidden = Random(tokens_ * model_.hidden * 2);
    const Buffer gate = Random(model_.experts * model_.hidden * 2);
    const Buffer logits = device_.Allocate(tokens_ * model_.experts * 4);
    const Buffer ints = device_.Allocate((num_rows() * 4 + model_.experts + 1) * 4);
    auto* const base = reinterpret_cast<int32_t*>(ints.data());
    const auto floats = [](const Buffer& buffer) {
      return reinterpret_cast<float*>(buffer.data());
    };
    const RouterLinearArgs router = {.x = floats(hidden),
                                     .weight = floats(gate),
                                     .bias = nullptr,
                                     .out = floats(logits),
                                     .num_tokens = tokens_,
                                     .rows = model_.experts,
                                     .cols = model_.hidden,
                                     .x_stride = model_.hidden,
                                     .out_stride = model_.experts};
    const RouteArgs route = {
        .logits = floats(logits),
        .bias = nullptr,
        .router = {.num_experts = model_.experts, .top_k = model_.top_k, .normalize = true},
        .experts = base,
        .weights = reinterpret_cast<float*>(base + num_rows()),
        .tokens = base + 2 * num_rows(),
        .rows = base + 3 * num_rows(),
        .offsets = base + 4 * num_rows(),
        .num_tokens = tokens_,
        .logits_stride = model_.experts};
    const auto time_router = [&](const char* name, const auto& launch) {
      Time(
          name, (tokens_ + model_.experts) * model_.hidden * 4,
          [&](cudaStream_t stream) { return launch(router, stream); },
          2 * tokens_ * model_.experts * model_.hidden);
    };
    time_router("router, lanes", &LaunchRouterLanes);
    if (HasRouterTiles(router)) time_router("router, tiles", &LaunchRouterTiles);
    Time("route", tokens_ * model_.experts * 4,
         [&](cudaStream_t stream) { return LaunchRoute(route, stream); });
    GatherAndCombine(route);
  }

  void GatherAndCombine(const RouteArgs& route) {
    const int64_t hidden = model_.hidden, row_bytes = hidden * 2;
    const Buffer x = Random(num_rows() * hidden * 2), source = Random(tokens_ * hidden);
    const Buffer grouped = device_.Allocate(num_rows() * row_bytes);
    const Buffer out = device_.Allocate(tokens_ * hidden * 4);
    const GatherArgs gather = {.source = source.data(),
                               .rows = route.tokens,
                               .out = grouped.data(),
                               .num_rows = num_rows(),
                               .row_bytes = row_bytes,
                               .source_stride = row_bytes,
                               .out_stride = row_bytes};
    const SpreadArgs spread = {.source = source.data(),
                               .rows = route.rows,
                               .out = grouped.data(),
                               .num_rows = tokens_,
                               .row_bytes = row_bytes,
                               .source_stride = row_bytes,
                               .out_stride = row_bytes,
                               .top_k = model_.top_k};
    const CombineArgs combine = {.x = reinterpret_cast<float*>(x.data()),
                                 .rows = route.rows,
                                 .weights = route.weights,
                                 .shared = nullptr,
                                 .shared_gate = nullptr,
                                 .out = reinterpret_cast<float*>(out.data()),
                                 .num_tokens = tokens_,
                                 .cols = hidden,
                                 .x_stride = hidden,
                                 .shared_stride = 0,
                                 .shared_gate_stride = 0,
                                 .out_stride = hidden,
                                 .top_k = model_.top_k,
                                 .shared_bf16 = false};
    const int64_t moved = (tokens_ + num_rows()) * row_bytes;
    Time("gather", moved, [&](cudaStream_t stream) { return LaunchGather(gather, stream); });
    Time("spread", moved, [&](cudaStream_t stream) { return LaunchSpread(spread, stream); });
    Time("combine", (num_rows() + tokens_) * hidden * 4,
         [&](cudaStream_t stream) { return LaunchCombine(combine, stream); });
  }

  template <typename Launch>
  void Time(const char* name, int64_t bytes, const Launch& launch, int64_t flops = 0) {
    const Timing timing =
        device_.Time(kRoutings, [&](int) { CUDA_RUN(device_.guard(), launch(device_.handle())); });
    std::printf("{\"op\": \"experts\", \"model\": \"%s\", \"name\": \"%s\", \"tokens\": %d, ",
                model_.name, name, static_cast<int>(tokens_));
    if (flops > 0) {
      std::printf("\"tflop_s\": %.1f, ", static_cast<double>(flops) / timing.median_us / 1e6);
    }
    PrintTiming(timing, static_cast<double>(bytes));
  }

  Device& device_;
  const Model& model_;
  const int64_t tokens_;
  double touched_ = 0;  // experts with tokens, on average
  std::vector<Buffer> offsets_;
};

}  // namespace

void BenchExperts(Device& device) {
  if (device.small()) return ExpertsBench(device, kSmallModel, 5).Run(true);
  for (const int64_t tokens : {1, 4, 16, 64, 256, 512, 768, 1024, 2048, 8192}) {
    ExpertsBench(device, kModel, tokens).Run(tokens <= 256 || tokens >= 1024);
  }
  ExpertsBench(device, kFewerExperts, 8192).Run(true);
}

}  // namespace tokamak::cuda
