// The numbers that GGUF files use for types of tensors and of metadata values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "tensor/dtype.h"

namespace tokamak {

enum class GgufType : uint32_t {
  kUint8 = 0,
  kInt8 = 1,
  kUint16 = 2,
  kInt16 = 3,
  kUint32 = 4,
  kInt32 = 5,
  kFloat32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kUint64 = 10,
  kInt64 = 11,
  kFloat64 = 12,
};
inline constexpr uint32_t kNumGgufTypes = 13;

// "uint32", "string", ...
const char* Name(GgufType type);
// Bytes of a scalar; 0 for strings and arrays.
uint64_t ScalarBytes(GgufType type);

// A tensor type that files are known to use, readable by this build or not.
struct GgufTensorType {
  uint32_t id;
  const char* name;  // as llama.cpp spells it
  // Elements and bytes of a block; 0 where the layout is not known (withdrawn types).
  int block_elements, block_bytes;
  std::optional<DType> dtype;  // nothing: can be listed, not read
};

// Null for a number that no known version of GGUF uses.
const GgufTensorType* FindGgufTensorType(uint32_t id);
// The type's number for writing.
uint32_t GgufTensorTypeId(DType dtype);

}  // namespace tokamak
