// A part of a panel with a byte per code and f32 scales, so that many tokens share the work of
// unpacking it.
#pragma once

#include "ops/cpu/kernels/codes.h"
#include "ops/cpu/kernels/constant.h"
#include "ops/cpu/kernels/group_scales.h"
#include "ops/cpu/kernels/prefetch.h"
#include "quant/activation_row.h"

namespace tokamak::cpu {

template <class D>
struct UnpackedPanel {
  // Few enough that the words stay in L1. With AMX 10 to 20% faster than 32, on 16 cores.
  static constexpr int kGroups = 16;
  static constexpr int kWordBytes = 4 * kPanelRows;
  static constexpr int kGroupBytes = 8 * kWordBytes;

  // A unit is a group or, in formats whose scales cover 16 elements, half of one.
  alignas(64) std::byte words[kGroups * kGroupBytes];  // [group][word][16]
  alignas(64) float scale[2 * kGroups * kPanelRows];   // [unit][16]
  alignas(64) float min[2 * kGroups * kPanelRows];     // [unit][16], if the format has one

  // Unpacks groups [first, first + n) of `panel`, each word as `adjust` returns it. Prefetches the
  // same part of the next panel, which may be the next item's or none.
  template <DType kDType, typename Adjust>
  void Unpack(const std::byte* panel, int64_t panel_bytes, int64_t first, int n, Adjust adjust) {
    constexpr PanelLayout kLayout = LayoutOf(kDType);
    constexpr int kColumnGroups = kLayout.elements / kActivationBlock;
    constexpr int kParts = PartsOfGroup(kDType);
    for (int g = 0; g < n; ++g) {
      const int64_t index = first + g;
      const std::byte* column = panel + index / kColumnGroups * kLayout.bytes;
      const int group = static_cast<int>(index % kColumnGroups);
      const std::byte* data = column + kLayout.groups + group * kLayout.group_bytes;
      constexpr int kBytes = kLayout.bytes / kColumnGroups;
      Prefetch(column + panel_bytes + group * kBytes, kBytes);
      for (int lane = 0; lane < kPanelRows; lane += D::kLanes) {
        Unroll<8>([&](auto word) {
          constexpr int kWord = decltype(word)::value;
          std::byte* out = words + g * kGroupBytes + kWord * kWordBytes + 4 * lane;
          const auto codes = adjust(CodesOf<D, kDType>::template Word<kWord>(data, lane));
          D::Store(reinterpret_cast<float*>(out), D::AsFloat(codes));
        });
        const auto scales = GroupScales<D, kDType>::Load(column, group, lane);
        for (int part = 0; part < kParts; ++part) {
          const int at = (g * kParts + part) * kPanelRows + lane;
          D::Store(scale + at, scales.scale[part]);
          if constexpr (HasMin(kDType)) D::Store(min + at, scales.min[part]);
        }
      }
    }
  }
};

}  // namespace tokamak::cpu
