// Quantizes a row of the KV cache, bit for bit like QuantizeRow. Q8_0 guarantees that only if all
// elements are finite.
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

// Adding and subtracting 2^20 times the power of two below an element leaves the three bits of its
// mantissa that E4M3 has. Below 2^-6 the distance between codes no longer shrinks. Times 2^-8 the
// result is a half whose bits contain the code's (see LoadE4m3).
template <class V>
void QuantizeRowE4m3(const float* source, int64_t n, std::byte* destination) {
  using F = typename V::F;
  using I = typename V::I;
  constexpr int kLanes = V::kLanes;
  for (int64_t at = 0; at < n; at += kLanes) {
    const int64_t count = n - at < kLanes ? n - at : kLanes;
    const F x = count == kLanes ? V::Load(source + at) : LoadPart<V>(source + at, count);
    const F size = V::Min(V::Broadcast(448), V::Max(V::Negate(x), x));  // NaN stays NaN
    I bits;
    __builtin_memcpy(&bits, &size, sizeof(bits));
    const F power = V::Max(V::Broadcast(0x1p-6f), V::AsFloat(V::And(bits, 0x7f800000)));
    const F magic = V::Mul(power, V::Broadcast(0x1p20f));
    const F rounded = V::Sub(V::Add(size, magic), magic);
    alignas(64) uint16_t halves[kLanes];
    V::StoreHalf(reinterpret_cast<std::byte*>(halves), V::Mul(rounded, V::Broadcast(0x1p-8f)));
    alignas(64) uint32_t signs[kLanes];
    __builtin_memcpy(signs, &x, sizeof(signs));
    uint8_t codes[kLanes];
    for (int j = 0; j < kLanes; ++j) {
      const int code = (halves[j] & 0x7fff) >> 7;
      codes[j] = static_cast<uint8_t>((code < 0x7f ? code : 0x7f) | (signs[j] >> 24 & 0x80));
    }
    __builtin_memcpy(destination + at, codes, static_cast<size_t>(count));
  }
}

}  // namespace tokamak::cpu
