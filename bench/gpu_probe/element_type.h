#pragma once

namespace probe {

// What the operands of a product are made of; accumulators are f32.
enum class Type { kBf16, kF16, kE4m3 };

}  // namespace probe
