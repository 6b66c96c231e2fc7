// An item is one sequence with some channels of the convolution, or with some columns of a head's
// state. It goes through the sequence's tokens in order, so neither the cut into steps nor the
// number of threads changes a bit. The columns of an item stay in the L1 cache from token to token.
//
// Bound for few tokens: reading and writing the state. For many: 6 · key_dim · value_dim operations
// per token and head.
#include "ops/cpu/gated_delta.h"

#include <algorithm>
#include <cmath>

#include "base/ceil_div.h"

namespace tokamak::cpu {
namespace {

constexpr int64_t kItemChannels = 256;

struct SequenceRows {
  int64_t first = 0, count = 0;
  bool is_new = false;  // its state before the rows is 0
  int32_t slot = 0;
};

// Without rows if the sequence is padding.
SequenceRows RowsOf(const StateBatch& batch, int64_t s) {
  const auto* starts = static_cast<const int32_t*>(batch.device_query_start_loc.data) + s;
  const int32_t length = static_cast<const int32_t*>(batch.device_seq_lens.data)[s];
  if (length == 0) return {};
  return {.first = starts[0],
          .count = starts[1] - starts[0],
          .is_new = length == starts[1] - starts[0],
          .slot = static_cast<const int32_t*>(batch.slots.data)[s]};
}

void Clear(float* rows, int64_t num_rows, int64_t stride, int64_t cols) {
  for (int64_t i = 0; i < num_rows; ++i) std::fill_n(rows + i * stride, cols, 0.0f);
}

}  // namespace

void RunCausalConv(const Kernels& kernels, ThreadPool& pool, const CausalConv& op) {
  const int64_t channels = op.x.cols(), kept = op.weight.rows() - 1;
  const int64_t parts = CeilDiv(channels, kItemChannels);
  pool.ParallelFor(op.batch.num_seqs() * parts, [&](int64_t item, int) {
    const SequenceRows rows = RowsOf(op.batch, item / parts);
    if (rows.count == 0) return;
    const int64_t first = item % parts * kItemChannels;
    const ConvTask task = {.x = op.x.Row<float>(rows.first) + first,
                           .weight = op.weight.Row<float>(0) + first,
                           .state = op.state.Conv(rows.slot) + first,
                           .out = op.out.Row<float>(rows.first) + first,
                           .x_stride = op.x.float_stride(),
                           .weight_stride = op.weight.float_stride(),
                           .state_stride = channels,
                           .out_stride = op.out.float_stride(),
                           .num_tokens = rows.count,
                           .kernel = static_cast<int>(kept + 1),
                           .channels = std::min(kItemChannels, channels - first)};
    if (rows.is_new) Clear(task.state, kept, channels, task.channels);
    kernels.convolve(task);
  });
}

void PrepareDelta(const Kernels& kernels, const GatedDelta& op, int64_t token) {
  const int key_dim = op.state.spec.key_dim;
  const auto scale = static_cast<float>(1 / std::sqrt(static_cast<double>(key_dim)));
  const auto normalize = [&](const Tensor& x, float to) {
    kernels.normalize_heads(x.Row<float>(token), static_cast<int>(op.key_heads()), key_dim,
                            GatedDelta::kNormEps, to);
  };
  normalize(op.q, scale);
  normalize(op.k, 1);
  const auto* rate = static_cast<const float*>(op.rate.data);
  const auto* bias = static_cast<const float*>(op.bias.data);
  float* const a = op.a.Row<float>(token);
  float* const b = op.b.Row<float>(token);
  for (int64_t h = 0; h < op.state.spec.num_heads; ++h) {
    const double step = static_cast<double>(a[h]) + bias[h];
    const double time = step > 20 ? step : std::log1p(std::exp(step));
    a[h] = static_cast<float>(std::exp(-rate[h] * time));
    b[h] = static_cast<float>(1 / (1 + std::exp(-static_cast<double>(b[h]))));
  }
}

void RunGatedDelta(const Kernels& kernels, ThreadPool& pool, const GatedDelta& op) {
  const StateLayerSpec& spec = op.state.spec;
  const int64_t heads = spec.num_heads, key_dim = spec.key_dim, value_dim = spec.value_dim;
  const int64_t parts = CeilDiv(value_dim, int64_t{kDeltaColumns});
  pool.ParallelFor(op.batch.num_seqs() * heads * parts, [&](int64_t item, int) {
    const SequenceRows rows = RowsOf(op.batch, item / parts / heads);
    if (rows.count == 0) return;
    const int64_t head = item / parts % heads, first = item % parts * kDeltaColumns;
    const int64_t key = op.KeyHead(head) * key_dim, value = head * value_dim + first;
    const DeltaTask task = {
        .state = op.state.Matrix(rows.slot) + head * key_dim * value_dim + first,
        .q = op.q.Row<float>(rows.first) + key,
        .k = op.k.Row<float>(rows.first) + key,
        .v = op.v.Row<float>(rows.first) + value,
        .decay = op.a.Row<float>(rows.first) + head,
        .beta = op.b.Row<float>(rows.first) + head,
        .out = op.out.Row<float>(rows.first) + value,
        .state_stride = value_dim,
        .qk_stride = op.q.float_stride(),
        .v_stride = op.v.float_stride(),
        .gate_stride = op.a.float_stride(),
        .out_stride = op.out.float_stride(),
        .num_tokens = rows.count,
        .key_dim = spec.key_dim,
        .columns = std::min<int64_t>(kDeltaColumns, value_dim - first)};
    if (rows.is_new) Clear(task.state, key_dim, value_dim, task.columns);
    kernels.delta(task);
  });
}

}  // namespace tokamak::cpu
