// Quantizes a row of the KV cache to Q8_0, bit for bit like QuantizeRow if all elements are finite.
#pragma once

#include "ops/cpu/kernels/lanes.h"
#include "quant/blocks.h"

namespace tokamak::cpu {

// `n` is a multiple of 32.
template <class V>
void QuantizeRowQ8_0(const float* source, int64_t n, std::byte* destination) {
  using F = typename V::F;
  constexpr int kLanes = V::kLanes;
  for (int64_t at = 0; at < n; at += kBlockElements, destination += sizeof(BlockQ8_0)) {
    const float* x = source + at;
    F largest = V::Zero();
    for (int i = 0; i < kBlockElements; i += kLanes) {
      const F value = V::Load(x + i);
      largest = V::Max(V::Max(value, V::Negate(value)), largest);  // Max skips a NaN here
    }
    alignas(64) std::byte half[32];
    V::StoreHalf(half, V::Broadcast(V::MaxLanes(largest) / 127));
    __builtin_memcpy(destination, half, 2);
    const float scale = V::First(V::BroadcastHalf(half));
    const F inverse = V::Broadcast(scale == 0 ? 0.0f : 1 / scale);
    for (int i = 0; i < kBlockElements; i += kLanes) {
      const F scaled = V::Max(V::Mul(V::Load(x + i), inverse), V::Broadcast(-127.0f));
      const auto codes = V::Round(V::Min(scaled, V::Broadcast(127.0f)));
      int32_t code[kLanes];
      __builtin_memcpy(code, &codes, sizeof(codes));
      for (int j = 0; j < kLanes; ++j) destination[2 + i + j] = static_cast<std::byte>(code[j]);
    }
  }
}

}  // namespace tokamak::cpu
