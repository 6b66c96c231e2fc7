// Weights in FP8 (E4M3) with a scale for each block of rows and columns, as DeepSeek-V3 stores them
// (arXiv:2412.19437, section 3.3). Internal to weights/.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ops/weight_source.h"
#include "tokamak/status.h"
#include "weights/byte_source.h"
#include "weights/config.h"
#include "weights/safetensors.h"

namespace tokamak {

inline constexpr int64_t kFp8Block = 128;  // rows, and columns
inline constexpr const char* kFp8TypeName = "F8_E4M3";
// Is added to a weight's name for that of its scales.
inline constexpr const char* kFp8ScaleSuffix = "_scale_inv";

// Whether config.json's quantization_config says that weights are stored so. An error where it asks
// for anything else; it names the field.
Result<bool> HasFp8Blocks(const ConfigValue& config, const std::string& source);

// The tensor `tensor` of `file` (its bytes are E4M3), each element times its block's scale, as bf16
// (how DeepSeek's own conversion has them). `scales`, row by row:
// [⌈rows / kFp8Block⌉, ⌈cols / kFp8Block⌉]; empty: none, the elements are the values.
std::shared_ptr<const WeightSource> MakeFp8Weight(std::shared_ptr<const ByteSource> file,
                                                  const StoredTensor& tensor,
                                                  std::vector<float> scales);

// E4M3 without infinities: 1 sign, 4 exponent and 3 mantissa bits.
float Fp8ToFloat(uint8_t bits);

}  // namespace tokamak
