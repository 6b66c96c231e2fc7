// How the CPU backend orders the elements of one KV head inside a block. Blocks are copied whole,
// so this concerns only RopeAndStore, Attention and tests.
//
// Values are rows, [block_size][head_dim] (in blocks of 32 elements for Q8_0). Keys are rows too
// unless block_size is a multiple of 16. Then they lie in panels of 16 positions, which SIMD lanes
// read without transposing:
//   plain types  [block_size / 16][head_dim][16]
//   Q8_0         [block_size / 16][head_dim / 32] of { f16 scales[16]; int8 codes[32][16]; }
// Both orders take the same number of bytes. Keys that contain their values (KvLayerView) are
// always rows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "quant/blocks.h"
#include "tensor/dtype.h"

namespace tokamak::cpu {

inline constexpr int kKeyPanel = 16;
inline constexpr int kKeyBlockBytes = kKeyPanel * static_cast<int>(sizeof(BlockQ8_0));

constexpr bool KeysInPanels(int block_size) { return block_size % kKeyPanel == 0; }

// Calls piece(offset in a row, offset in the head's keys, bytes) for each piece of the key at
// `position`. `bytes` is a constant if pieces are single elements.
template <typename Piece>
void ForEachKeyPiece(DType dtype, int block_size, int head_dim, int position, Piece piece) {
  const auto row_bytes = static_cast<int64_t>(RowBytes(dtype, head_dim));
  if (!KeysInPanels(block_size)) return piece(int64_t{0}, position * row_bytes, row_bytes);
  const int64_t panel = position / kKeyPanel * kKeyPanel * row_bytes;
  const int64_t lane = position % kKeyPanel;
  const auto elements = [&](int64_t from, int64_t to, int count, auto bytes) {
    for (int64_t i = 0; i < count; ++i) {
      piece(from + i * bytes, to + (i * kKeyPanel + lane) * bytes, bytes);
    }
  };
  using std::integral_constant;
  if (dtype == DType::kQ8_0) {
    for (int64_t b = 0; b < head_dim / kBlockElements; ++b) {
      const int64_t from = b * static_cast<int64_t>(sizeof(BlockQ8_0));
      const int64_t to = panel + b * kKeyBlockBytes;
      elements(from, to, 1, integral_constant<int, 2>());
      elements(from + 2, to + 2 * kKeyPanel, kBlockElements, integral_constant<int, 1>());
    }
  } else if (dtype == DType::kF32) {
    elements(0, panel, head_dim, integral_constant<int, 4>());
  } else if (dtype == DType::kF8E4M3) {
    elements(0, panel, head_dim, integral_constant<int, 1>());
  } else {
    elements(0, panel, head_dim, integral_constant<int, 2>());
  }
}

// Copy a key between `row`, a row of `dtype`, and `keys`, the head's keys in a block.
inline void StoreKey(DType dtype, int block_size, int head_dim, int position, const std::byte* row,
                     std::byte* keys) {
  ForEachKeyPiece(dtype, block_size, head_dim, position, [&](int64_t from, int64_t to, auto bytes) {
    std::memcpy(keys + to, row + from, static_cast<size_t>(bytes));
  });
}
inline void LoadKey(DType dtype, int block_size, int head_dim, int position, const std::byte* keys,
                    std::byte* row) {
  ForEachKeyPiece(dtype, block_size, head_dim, position, [&](int64_t to, int64_t from, auto bytes) {
    std::memcpy(row + to, keys + from, static_cast<size_t>(bytes));
  });
}

}  // namespace tokamak::cpu
