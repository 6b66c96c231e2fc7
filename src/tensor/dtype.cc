#include "tensor/dtype.h"

#include <array>

#include "base/check.h"

namespace tokamak {
namespace {

constexpr std::array<DTypeInfo, kNumDTypes> kInfo = {{
    {"F32", 1, 4},      {"F16", 1, 2},      {"BF16", 1, 2},     {"F8_E4M3", 1, 1},
    {"I8", 1, 1},       {"I32", 1, 4},      {"I64", 1, 8},      {"I8_BLOCKS", 32, 40},
    {"Q4_0", 32, 18},   {"Q4_1", 32, 20},   {"Q5_0", 32, 22},   {"Q5_1", 32, 24},
    {"Q8_0", 32, 34},   {"Q2_K", 256, 84},  {"Q3_K", 256, 110}, {"Q4_K", 256, 144},
    {"Q5_K", 256, 176}, {"Q6_K", 256, 210}, {"IQ4_NL", 32, 18}, {"IQ4_XS", 256, 136},
    {"MXFP4", 32, 17},
}};

}  // namespace

const DTypeInfo& Info(DType dtype) { return kInfo[static_cast<size_t>(dtype)]; }

bool HoldsWeights(DType dtype) {
  return dtype != DType::kI8 && dtype != DType::kI32 && dtype != DType::kI64 &&
         dtype != DType::kF8E4M3 && dtype != DType::kI8Blocks;
}

size_t RowBytes(DType dtype, int64_t elements) {
  const DTypeInfo& info = Info(dtype);
  CHECK_MSG(elements % info.block_elements == 0, "a row must be whole blocks");
  return static_cast<size_t>(elements / info.block_elements) *
         static_cast<size_t>(info.block_bytes);
}

}  // namespace tokamak
