// Sums in an order that all ISAs share: lane i of 16 partial sums takes elements i, i + 16, ...;
// they are folded in halves at the end.
#pragma once

#include <cstdint>

namespace tokamak::cpu {

template <class V>
struct Lanes {
  using F = typename V::F;
  static constexpr int kVectors = 16 / V::kLanes;

  F v[kVectors];

  void Fill(float value) {
    for (int i = 0; i < kVectors; ++i) v[i] = V::Broadcast(value);
  }

  // ((s0 + s8) + (s4 + s12)) + ... : lane i + lane i + 8, then + 4, + 2, + 1.
  float Sum() const { return V::SumLanes(FoldVectors(V::Add)); }

  // May miss NaN lanes.
  float Max() const { return V::MaxLanes(FoldVectors(V::Max)); }

 private:
  template <typename Fold>
  F FoldVectors(Fold fold) const {
    F s[kVectors];
    for (int i = 0; i < kVectors; ++i) s[i] = v[i];
    for (int half = kVectors / 2; half > 0; half /= 2) {
      for (int i = 0; i < half; ++i) s[i] = fold(s[i], s[i + half]);
    }
    return s[0];
  }
};

// Loads or stores n < kLanes floats. LoadPart fills the other lanes with zeros.
template <class V>
typename V::F LoadPart(const float* source, int64_t n) {
  alignas(64) float buffer[16] = {};
  for (int64_t i = 0; i < n; ++i) buffer[i] = source[i];
  return V::Load(buffer);
}
template <class V>
void StorePart(float* destination, int64_t n, typename V::F value) {
  alignas(64) float buffer[16];
  V::Store(buffer, value);
  for (int64_t i = 0; i < n; ++i) destination[i] = buffer[i];
}

}  // namespace tokamak::cpu
