// Weights in FP8 (E4M3) with one scale per block of rows and columns, as DeepSeek-V3 stores them
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

inline constexpr int64_t kFp8Block = 128;  // rows and columns of a block
inline constexpr const char* kFp8TypeName = "F8_E4M3";
// Appended to a weight's name to give the name of its scales.
inline constexpr const char* kFp8ScaleSuffix = "_scale_inv";

// Whether config.json's quantization_config asks for this format. If it asks for any other, an
// error that names the field.
Result<bool> HasFp8Blocks(const JsonValue& config, const std::string& source);

// Returns `tensor` of `file` (its bytes are E4M3) as bf16, as DeepSeek's own conversion does: each
// element times its block's scale. `scales` is [⌈rows / kFp8Block⌉, ⌈cols / kFp8Block⌉], row by
// row; if empty, the elements are the values.
std::shared_ptr<const WeightSource> MakeFp8Weight(std::shared_ptr<const ByteSource> file,
                                                  const StoredTensor& tensor,
                                                  std::vector<float> scales);

}  // namespace tokamak
