#include "ops/cpu/activation.h"

#include <algorithm>

#include "base/check.h"

namespace tokamak::cpu {

DType ActivationOf(const WeightSpec& spec, const IsaKernels& isa) {
  if (spec.use == WeightUse::kRouter || spec.use == WeightUse::kHeads) return DType::kF32;
  const auto all = [&spec](auto is) {
    return std::all_of(spec.parts.begin(), spec.parts.end(),
                       [&](const auto& part) { return is(part->dtype()); });
  };
  if (isa.int8 != nullptr && all(IsBlockType)) return DType::kI8Blocks;
  if (isa.bf16 != nullptr && all([](DType t) { return t == DType::kBF16; })) return DType::kBF16;
  return DType::kF32;
}

void RoundActivations(const IsaKernels& isa, const float* x, int64_t first, int64_t n,
                      const Tensor& out, int64_t row) {
  std::byte* const destination = out.RowData(row);
  if (out.dtype == DType::kBF16) {
    isa.kernels->convert(DType::kBF16, x, n, destination + RowBytes(DType::kBF16, first));
  } else {
    CHECK(out.dtype == DType::kI8Blocks);
    isa.int8->quantize(x, first, n, out.cols(), destination);
  }
}

}  // namespace tokamak::cpu
