// Element types. A block type packs `block_elements` consecutive elements of a row into
// `block_bytes` bytes; a plain type is a block of one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tokamak {

enum class DType : uint8_t {
  kF32,
  kF16,
  kBF16,
  kF8E4M3,  // KV caches; weights stored in it are read as BF16 (quant/e4m3.h)
  kI8,
  kI32,
  kI64,
  // Activations: int8 with a scale per 32 elements, in planar rows (quant/activation_row.h).
  kI8Blocks,
  // GGUF block formats (quant/blocks.h).
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ8_0,
  kQ2_K,
  kQ3_K,
  kQ4_K,
  kQ5_K,
  kQ6_K,
  kIQ4_NL,
  kIQ4_XS,
  kMXFP4,
};
inline constexpr int kNumDTypes = static_cast<int>(DType::kMXFP4) + 1;

struct DTypeInfo {
  std::string_view name;  // as GGUF and llama.cpp spell it, e.g. "Q4_K"
  int block_elements;
  int block_bytes;
};

const DTypeInfo& Info(DType dtype);
inline std::string_view Name(DType dtype) { return Info(dtype).name; }
inline bool IsBlockType(DType dtype) { return Info(dtype).block_elements > 1; }

// Whether weights may be in this type. False for integers, FP8 and activations.
bool HoldsWeights(DType dtype);

// Size of `elements` consecutive elements, which must be whole blocks.
size_t RowBytes(DType dtype, int64_t elements);

}  // namespace tokamak
