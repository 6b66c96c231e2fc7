// How the CPU backends store a weight: in panels of 16 output rows, interleaved so that a SIMD lane
// is an output row. All ISAs share the layout. It takes as many bytes as the rows in the file, but
// an odd number of BF16 columns is padded with a column of zeros.
//
// A panel is a sequence of block columns, each with 1 element (F32, F16), 2 elements (BF16:
// u16[16][2], so that a 32-bit lane holds the pair that dot products take), or a block of 32 or 256
// elements of each of the 16 rows. In such blocks, each field of the file's block is an array over
// the rows, in this order:
//
//   d, dmin or m  u16[16]         f16 scales, if the format has them (MXFP4: e, u8[16])
//   scale words   u32[n][16]      the format's own packed scales, n words per row
//   groups        one per 32 elements, each made of
//     codes4      u32[4][16]      word j, byte b: element 8j + b in the low nibble, 8j + 4 + b in
//                                 the high one
//     codes2      u32[2][16]      word j, byte b, bits [2v, 2v + 2): element 16j + 4v + b
//     bits        u32[16]         byte b, bit i: element 4i + b
//     codes8      u32[8][16]      word j, byte b: element 4j + b
//
// Masking a word leaves four consecutive elements in its four bytes, as dot products take them.
// Shifting it moves any one element to the low bits.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"

namespace tokamak::cpu {

inline constexpr int kPanelRows = 16;

// Index of element k's bit in a word of `bits`.
constexpr int BitOfElement(int k) { return 8 * (k % 4) + k / 4; }

// Byte offsets of the parts of a block column; -1 if the format lacks the part.
struct PanelLayout {
  int elements = 0;      // per row and block column
  int bytes = 0;         // of a block column
  int scale_words = -1;  // offset of the scale words
  int groups = -1;       // offset of the first group
  int group_bytes = 0;
  int codes4 = -1;  // offsets in a group
  int codes2 = -1;
  int bits = -1;
  int codes8 = -1;
};

// The layout of a block type.
constexpr PanelLayout LayoutOf(DType dtype) {
  constexpr int k32 = 32, k256 = 256, kWord = 4 * kPanelRows, kHalf = 2 * kPanelRows;
  switch (dtype) {
    case DType::kQ4_0:
    case DType::kIQ4_NL:
      return {.elements = k32, .bytes = 18 * kPanelRows, .groups = kHalf, .codes4 = 0};
    case DType::kQ4_1:
      return {.elements = k32, .bytes = 20 * kPanelRows, .groups = 2 * kHalf, .codes4 = 0};
    case DType::kQ5_0:
      return {.elements = k32,
              .bytes = 22 * kPanelRows,
              .groups = kHalf,
              .codes4 = 0,
              .bits = 4 * kWord};
    case DType::kQ5_1:
      return {.elements = k32,
              .bytes = 24 * kPanelRows,
              .groups = 2 * kHalf,
              .codes4 = 0,
              .bits = 4 * kWord};
    case DType::kQ8_0:
      return {.elements = k32, .bytes = 34 * kPanelRows, .groups = kHalf, .codes8 = 0};
    case DType::kMXFP4:
      return {.elements = k32, .bytes = 17 * kPanelRows, .groups = kPanelRows, .codes4 = 0};
    case DType::kQ2_K:
      return {.elements = k256,
              .bytes = 84 * kPanelRows,
              .scale_words = 2 * kHalf,
              .groups = 2 * kHalf + 4 * kWord,
              .group_bytes = 2 * kWord,
              .codes2 = 0};
    case DType::kQ3_K:
      return {.elements = k256,
              .bytes = 110 * kPanelRows,
              .scale_words = kHalf,
              .groups = kHalf + 3 * kWord,
              .group_bytes = 3 * kWord,
              .codes2 = 0,
              .bits = 2 * kWord};
    case DType::kQ4_K:
      return {.elements = k256,
              .bytes = 144 * kPanelRows,
              .scale_words = 2 * kHalf,
              .groups = 2 * kHalf + 3 * kWord,
              .group_bytes = 4 * kWord,
              .codes4 = 0};
    case DType::kQ5_K:
      return {.elements = k256,
              .bytes = 176 * kPanelRows,
              .scale_words = 2 * kHalf,
              .groups = 2 * kHalf + 3 * kWord,
              .group_bytes = 5 * kWord,
              .codes4 = 0,
              .bits = 4 * kWord};
    case DType::kQ6_K:
      return {.elements = k256,
              .bytes = 210 * kPanelRows,
              .scale_words = kHalf,
              .groups = kHalf + 4 * kWord,
              .group_bytes = 6 * kWord,
              .codes4 = 0,
              .codes2 = 4 * kWord};
    case DType::kIQ4_XS:  // scale words: scales_h as u16[16], then scales_l as u32[16]
      return {.elements = k256,
              .bytes = 136 * kPanelRows,
              .scale_words = kHalf,
              .groups = 2 * kHalf + kWord,
              .group_bytes = 4 * kWord,
              .codes4 = 0};
    default:
      return {};
  }
}

// Bytes of a panel with `cols` columns.
inline int64_t PanelBytes(DType dtype, int64_t cols) {
  const int64_t padded = dtype == DType::kBF16 ? cols + cols % 2 : cols;
  return kPanelRows * static_cast<int64_t>(RowBytes(dtype, padded));
}

// Packs 16 rows of `cols` elements, densely packed, RowBytes(dtype, cols) each, into a panel of
// PanelBytes. `rows` is aligned to 2 bytes. Values do not change.
void PackPanel(DType dtype, int64_t cols, const std::byte* rows, std::byte* panel);

}  // namespace tokamak::cpu
