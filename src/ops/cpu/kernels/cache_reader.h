// Reads one cache type as vectors of f32: from the keys of a panel (lanes are positions) or from a
// row of values (lanes are its elements). See ops/cpu/cache_layout.h.
#pragma once

#include "ops/cpu/cache_layout.h"

namespace tokamak::cpu {

template <class V, DType kStored>
struct CacheReader {
  using F = typename V::F;
  static constexpr DType kType = kStored;
  static constexpr int kBytes = kType == DType::kF32 ? 4 : kType == DType::kF8E4M3 ? 1 : 2;
  // Elements of a row that share a scale, and the bytes that they take in a row of values.
  static constexpr int kBlock = 16;
  static constexpr int kRowBlockBytes = kBlock * kBytes;
  static constexpr int64_t kPanelBlockBytes = kBlock * kKeyPanel * kBytes;
  struct Scale {};

  static F Read(const std::byte* p) {
    if constexpr (kType == DType::kF16) return V::LoadHalf(p);
    if constexpr (kType == DType::kBF16) return V::LoadBFloat16(p);
    if constexpr (kType == DType::kF8E4M3) return V::LoadE4m3(p);
    if constexpr (kType == DType::kF32) return V::Load(reinterpret_cast<const float*>(p));
  }
  // The scale of lanes [lane, lane + kLanes) of a panel, for kBlock elements.
  static Scale KeyScale(const std::byte* /*panel_block*/, int /*lane*/) { return {}; }
  // Element i of the block, lanes [lane, lane + kLanes).
  static F Key(const std::byte* panel_block, int i, int lane, Scale /*scale*/) {
    return Read(panel_block + (i * kKeyPanel + lane) * kBytes);
  }
  // Elements [i, i + kLanes) of a row that starts at a block.
  static F Value(const std::byte* row, int i) { return Read(row + i * kBytes); }
};

// A code times its scale is exact in f32, so any order of use gives the same dequantized elements.
template <class V>
struct CacheReader<V, DType::kQ8_0> {
  using F = typename V::F;
  static constexpr DType kType = DType::kQ8_0;
  static constexpr int kBlock = kBlockElements;
  static constexpr int kRowBlockBytes = sizeof(BlockQ8_0);
  static constexpr int64_t kPanelBlockBytes = kKeyBlockBytes;
  using Scale = F;

  static Scale KeyScale(const std::byte* panel_block, int lane) {
    return V::LoadHalf(panel_block + 2 * lane);
  }
  static F Key(const std::byte* panel_block, int i, int lane, Scale scale) {
    const std::byte* codes = panel_block + 2 * kKeyPanel;
    return V::Mul(V::ToFloat(V::LoadInt8(codes + i * kKeyPanel + lane)), scale);
  }
  static F Value(const std::byte* row, int i) {
    const std::byte* block = row + i / kBlock * kRowBlockBytes;
    return V::Mul(V::ToFloat(V::LoadInt8(block + 2 + i % kBlock)), V::BroadcastHalf(block));
  }
};

}  // namespace tokamak::cpu
