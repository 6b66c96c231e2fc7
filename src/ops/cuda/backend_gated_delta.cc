// CudaOps: the operations of gated delta nets.
#include <cmath>
#include <utility>

#include "ops/cuda/backend.h"
#include "ops/cuda/kernel_table.h"
#include "ops/cuda/kernels.h"
#include "ops/cuda/limits.h"

namespace tokamak::cuda {
namespace {

StateArgs States(float* first, const StateLayerView& view, const StateBatch& batch) {
  return {.first = first,
          .slot_stride = view.slot_stride,
          .query_start_loc = Data<const int32_t>(batch.device_query_start_loc),
          .seq_lens = Data<const int32_t>(batch.device_seq_lens),
          .slots = Data<const int32_t>(batch.slots),
          .num_seqs = batch.num_seqs()};
}

}  // namespace

void CudaOps::Run(const CausalConv& op, Stream& stream) {
  CHECK(op.weight.float_stride() == op.weight.cols());
  CUDA_RUN(guard_, LaunchCausalConv({.x = Data<const float>(op.x),
                                     .weight = Data<const float>(op.weight),
                                     .out = Data<float>(op.out),
                                     .states = States(op.state.conv, op.state, op.batch),
                                     .channels = op.x.cols(),
                                     .kernel = op.weight.rows(),
                                     .x_stride = op.x.float_stride(),
                                     .out_stride = op.out.float_stride()},
                                    Handle(stream)));
}

void CudaOps::Run(const GatedDelta& op, Stream& stream) {
  const StateLayerSpec& spec = op.state.spec;
  CHECK(op.q.row_stride == op.k.row_stride && op.a.row_stride == op.b.row_stride &&
        spec.key_dim <= kMaxDeltaKeyDim);
  const DeltaArgs args = {
      .q = Data<float>(op.q),
      .k = Data<float>(op.k),
      .v = Data<const float>(op.v),
      .a = Data<float>(op.a),
      .b = Data<float>(op.b),
      .rate = Data<const float>(op.rate),
      .bias = Data<const float>(op.bias),
      .out = Data<float>(op.out),
      .states = States(op.state.matrix, op.state, op.batch),
      .num_tokens = op.out.rows(),
      .value_dim = spec.value_dim,
      .qk_stride = op.q.float_stride(),
      .v_stride = op.v.float_stride(),
      .gate_stride = op.a.float_stride(),
      .out_stride = op.out.float_stride(),
      .key_heads = static_cast<int32_t>(op.key_heads()),
      .value_heads = spec.num_heads,
      .key_dim = spec.key_dim,
      .eps = GatedDelta::kNormEps,
      .scale = static_cast<float>(1 / std::sqrt(static_cast<double>(spec.key_dim))),
      .tiled = op.tiled};
  CUDA_RUN(guard_, LaunchGatedDelta(args, Handle(stream)));
}

// Every model that uses this file's kernels uses this one.
void CudaOps::Run(const GateOutput& op, Stream& stream) {
  if (!std::exchange(has_output_gates_, true)) WarnOfUnverified({&kGatedDeltaKernels, 1});
  CHECK(op.x.dtype == op.gate.dtype);
  // Without a norm, where heads end does not matter.
  constexpr int64_t kAnyHead = 256;
  CUDA_RUN(guard_,
           LaunchGateOutput({.x = op.x.data,
                             .gate = op.gate.data,
                             .norm = op.norm != nullptr ? Data<const float>(*op.norm) : nullptr,
                             .out = op.out.data,
                             .in_bf16 = op.x.dtype == DType::kBF16,
                             .out_bf16 = op.out.dtype == DType::kBF16,
                             .silu = op.activation == OutputGate::kSilu,
                             .num_tokens = op.x.rows(),
                             .cols = op.x.cols(),
                             .head_dim = op.norm != nullptr ? op.norm->cols() : kAnyHead,
                             .x_stride = ElementStride(op.x),
                             .gate_stride = ElementStride(op.gate),
                             .out_stride = ElementStride(op.out),
                             .eps = op.norm_eps},
                            Handle(stream)));
}

}  // namespace tokamak::cuda
