// The numbers that GGUF uses for types of tensors and metadata values.
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
// Size of a scalar in bytes; 0 for strings and arrays.
uint64_t ScalarBytes(GgufType type);

// A tensor type known to occur in files, readable by this build or not.
struct GgufTensorType {
  uint32_t id;
  const char* name;  // as llama.cpp spells it
  // Elements and bytes per block; 0 if the layout is unknown (withdrawn types).
  int block_elements, block_bytes;
  std::optional<DType> dtype;  // absent: can be listed but not read
};

// Null if no known version of GGUF uses the number.
const GgufTensorType* FindGgufTensorType(uint32_t id);
// The type's number, for writing.
uint32_t GgufTensorTypeId(DType dtype);

}  // namespace tokamak
