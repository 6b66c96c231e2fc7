#pragma once

namespace probe {

// The type of a product's operands; accumulators are f32.
enum class Type { kBf16, kF16, kE4m3 };

}  // namespace probe
