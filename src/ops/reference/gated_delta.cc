#include "ops/reference/gated_delta.h"

#include <cmath>
#include <vector>

#include "base/check.h"
#include "quant/quantize.h"

namespace tokamak {
namespace {

double Sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

double SumOfSquares(const float* x, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += static_cast<double>(x[i]) * x[i];
  return sum;
}

// Calls body(first row, rows, state) for each sequence, with its part of `states`, that of slot 0.
// The state of a new sequence is filled with 0.
template <typename Body>
void ForEachSequence(const StateBatch& batch, float* states, int64_t slot_stride, int64_t elements,
                     Body body) {
  const auto* starts = static_cast<const int32_t*>(batch.device_query_start_loc.data);
  for (int32_t s = 0; s < batch.num_seqs(); ++s) {
    const int64_t rows = starts[s + 1] - starts[s];
    const int32_t length = static_cast<const int32_t*>(batch.device_seq_lens.data)[s];
    if (rows == 0 || length == 0) continue;
    float* state = states + static_cast<const int32_t*>(batch.slots.data)[s] * slot_stride;
    if (length == rows) std::fill_n(state, elements, 0.0f);
    body(int64_t{starts[s]}, rows, state);
  }
}

// One token of one head. S [key_dim, value_dim].
void UpdateState(const std::vector<double>& q, const std::vector<double>& k, const float* v,
                 int64_t value_dim, double decay, double beta, float* s, float* out) {
  const auto at = [value_dim](size_t i, int64_t j) {
    return static_cast<int64_t>(i) * value_dim + j;
  };
  for (int64_t j = 0; j < value_dim; ++j) {
    double known = 0, sum = 0;
    for (size_t i = 0; i < k.size(); ++i) known += decay * s[at(i, j)] * k[i];
    const double delta = beta * (v[j] - known);
    for (size_t i = 0; i < k.size(); ++i) {
      const double updated = decay * s[at(i, j)] + k[i] * delta;
      sum += updated * q[i];
      s[at(i, j)] = static_cast<float>(updated);
    }
    out[j] = static_cast<float>(sum);
  }
}

}  // namespace

void RunReference(const CausalConv& op) {
  const int64_t channels = op.x.cols(), kept = op.weight.rows() - 1;
  const auto convolve = [&](int64_t first, int64_t rows, float* state) {
    std::vector<float> inputs(state, state + kept * channels);
    for (int64_t t = first; t < first + rows; ++t) {
      const float* x = op.x.Row<float>(t);
      inputs.insert(inputs.end(), x, x + channels);
      for (int64_t c = 0; c < channels; ++c) {
        double sum = 0;
        for (int64_t j = 0; j <= kept; ++j) {
          const auto input = static_cast<size_t>((t - first + j) * channels + c);
          sum += static_cast<double>(op.weight.Row<float>(j)[c]) * inputs[input];
        }
        op.out.Row<float>(t)[c] = static_cast<float>(sum * Sigmoid(sum));
      }
    }
    std::copy(inputs.end() - kept * channels, inputs.end(), state);
  };
  ForEachSequence(op.batch, op.state.conv, op.state.slot_stride, kept * channels, convolve);
}

void RunReference(const GatedDelta& op) {
  const StateLayerSpec& spec = op.state.spec;
  const int64_t heads = spec.num_heads, key_dim = spec.key_dim, value_dim = spec.value_dim;
  const auto* rate = static_cast<const float*>(op.rate.data);
  const auto* bias = static_cast<const float*>(op.bias.data);
  const auto normalized = [&](const float* x, double scale) {
    scale /= std::sqrt(SumOfSquares(x, key_dim) + GatedDelta::kNormEps);
    std::vector<double> result(x, x + key_dim);
    for (double& value : result) value *= scale;
    return result;
  };
  const auto update = [&](int64_t first, int64_t rows, float* state) {
    for (int64_t t = first; t < first + rows; ++t) {
      for (int64_t h = 0; h < heads; ++h) {
        const int64_t key = op.KeyHead(h) * key_dim;
        const double step = static_cast<double>(op.a.Row<float>(t)[h]) + bias[h];
        UpdateState(
            normalized(op.q.Row<float>(t) + key, 1 / std::sqrt(static_cast<double>(key_dim))),
            normalized(op.k.Row<float>(t) + key, 1), op.v.Row<float>(t) + h * value_dim, value_dim,
            std::exp(-rate[h] * (step > 20 ? step : std::log1p(std::exp(step)))),
            Sigmoid(op.b.Row<float>(t)[h]), state + h * key_dim * value_dim,
            op.out.Row<float>(t) + h * value_dim);
      }
    }
  };
  ForEachSequence(op.batch, op.state.matrix, op.state.slot_stride, spec.MatrixElements(), update);
}

void RunReference(const GateOutput& op) {
  const int64_t cols = op.x.cols();
  const int64_t head_dim = op.norm != nullptr ? op.norm->cols() : cols;
  std::vector<float> row(static_cast<size_t>(cols));
  for (int64_t t = 0; t < op.x.rows(); ++t) {
    const float* x = op.x.Row<float>(t);
    for (int64_t i = 0; i < cols; ++i) {
      const double gate = op.gate.Row<float>(t)[i];
      double value = x[i] * Sigmoid(gate);
      if (op.activation == OutputGate::kSilu) value *= gate;
      if (op.norm != nullptr) {
        const double squares = SumOfSquares(x + i / head_dim * head_dim, head_dim);
        value *= static_cast<const float*>(op.norm->data)[i % head_dim] /
                 std::sqrt(squares / static_cast<double>(head_dim) + op.norm_eps);
      }
      row[static_cast<size_t>(i)] = static_cast<float>(value);
    }
    QuantizeRow(op.out.dtype, row.data(), cols, op.out.RowData(t));
  }
}

}  // namespace tokamak
