// Runs a layer with random weights on the reference backend. For tests.
#pragma once

#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "base/check.h"
#include "nn/attention.h"
#include "nn/builder.h"
#include "nn/embedding.h"
#include "nn/pass.h"
#include "nn/testing/random_tensors.h"
#include "ops/host/communicator.h"
#include "ops/reference/reference_ops.h"

namespace tokamak::nn::testing {

inline constexpr int64_t kTokens = 3;

// Everything that a layer's Forward needs, for kTokens tokens of one sequence.
class Bench {
 public:
  // `communicator`: for one of several ranks.
  explicit Bench(DType dtype = DType::kF32, std::shared_ptr<Communicator> communicator = nullptr)
      : tensors_(7, dtype), ops_(MakeReferenceOps(std::move(communicator))) {}

  WeightLoad Load() { return Load({ops_->rank().size, ops_->rank().rank}); }
  WeightLoad Load(ParallelContext parallel) {
    return {.tensors = tensors_,
            .ops = ops_.get(),
            .parallel = parallel,
            .progress = {},
            .status = {},
            .spec = {}};
  }
  // f32 [kTokens, cols]; the same values for the same cols.
  Tensor Input(int64_t cols) {
    Tensor x = arena_.Allocate(DType::kF32, {kTokens, cols});
    std::mt19937 random(5);
    for (int64_t i = 0; i < kTokens * cols; ++i) {
      static_cast<float*>(x.data)[i] = static_cast<float>(random()) * 0x1p-31f - 1.0f;
    }
    return x;
  }
  template <typename Layer>
  std::vector<float> Run(const Layer& layer, Tensor x, int64_t cols) {
    Tensor out = arena_.Allocate(DType::kF32, {kTokens, cols});
    layer.Forward(pass_, {x}, out);
    const auto* values = static_cast<const float*>(out.data);
    return std::vector<float>(values, values + kTokens * cols);
  }
  // For attention layers, which need a cache: one block, filled in order by the positions.
  template <typename Layer>
  std::vector<float> Run(const Layer& layer, const CacheLayout& layout, Tensor x, int64_t cols) {
    const KvLayerSpec& spec = layout.layers.front();
    const int64_t keys = int64_t{spec.num_kv_heads} * kTokens * spec.head_dim;
    const int64_t rest = int64_t{spec.num_kv_heads} * kTokens * spec.StoredValueDim();
    Tensor cache = arena_.Allocate(DType::kF32, {keys + rest});
    KvLayerView view = spec.View();
    view.base = static_cast<std::byte*>(cache.data);
    view.block_stride = 4 * (keys + rest);
    view.v_offset = spec.ValuesAfter(DType::kF32, 4 * keys);
    view.block_size = kTokens;
    AttentionShape shape = spec.Attention();
    shape.block_size = kTokens;
    shape.window = layout.groups.front().window;
    shape.max_seqs = 1;
    shape.max_tokens = kTokens;
    shape.max_blocks_per_seq = 1;
    auto plan = ops_->MakeAttentionPlan(shape);
    CHECK(plan.ok());
    int32_t query_start_loc[] = {0, kTokens}, seq_lens[] = {kTokens}, zero[] = {0};
    (*plan)->Fill({.query_start_loc = query_start_loc,
                   .seq_lens = seq_lens,
                   .device_query_start_loc = Tensor(query_start_loc, DType::kI32, {2}),
                   .device_seq_lens = Tensor(seq_lens, DType::kI32, {1}),
                   .table_rows = Tensor(zero, DType::kI32, {1}),
                   .block_tables = Tensor(zero, DType::kI32, {1, 1})},
                  *stream_);
    int64_t slot_mapping[] = {0, 1, 2};
    const AttentionMetadata group{plan->get(), Tensor(slot_mapping, DType::kI64, {kTokens})};
    Pass pass{.ops = *ops_,
              .stream = *stream_,
              .arena = arena_,
              .token_ids = {},
              .positions = Tensor(positions_, DType::kI32, {kTokens}),
              .groups = {&group, 1},
              .kv_layers = {&view, 1},
              .logit_rows = {}};
    Tensor out = arena_.Allocate(DType::kF32, {kTokens, cols});
    layer.Forward(pass, {x}, out);
    const auto* values = static_cast<const float*>(out.data);
    return std::vector<float>(values, values + kTokens * cols);
  }

  // The logits of kTokens tokens, whose hidden states are their embeddings.
  std::vector<float> RunVocabulary(const Embedding& embedding, const OutputLayer& output,
                                   std::vector<int32_t> ids, int64_t hidden_size) {
    Tensor hidden = arena_.Allocate(DType::kF32, {kTokens, hidden_size});
    pass_.token_ids = Tensor(ids.data(), DType::kI32, {kTokens});
    embedding.Forward(pass_, hidden);
    const Tensor logits = output.Logits(pass_, hidden);
    const auto* values = static_cast<const float*>(logits.data);
    return std::vector<float>(values, values + logits.shape.elements());
  }

  Ops& ops() { return *ops_; }

 private:
  ::tokamak::testing::RandomTensors tensors_;
  std::unique_ptr<Ops> ops_;
  std::unique_ptr<Stream> stream_ = ops_->MakeStream();
  Arena arena_{*ops_->Allocate(4 << 20, MemoryKind::kDevice)};
  int32_t positions_[kTokens] = {0, 1, 2};
  Pass pass_{.ops = *ops_,
             .stream = *stream_,
             .arena = arena_,
             .token_ids = {},
             .positions = {},
             .groups = {},
             .kv_layers = {},
             .logit_rows = {}};
};

}  // namespace tokamak::nn::testing
