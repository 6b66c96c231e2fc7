#include "ops/cpu/panel_layout.h"

#include <cstring>

#include "base/check.h"
#include "quant/blocks.h"

namespace tokamak::cpu {
namespace {

uint32_t Load32(const uint8_t* bytes) {
  uint32_t word;
  std::memcpy(&word, bytes, 4);
  return word;
}

// Four words. The compiler has instructions for them on every machine.
typedef uint32_t Words __attribute__((vector_size(16)));

Words LoadWords(const void* from) {
  Words words;
  std::memcpy(&words, from, sizeof(words));
  return words;
}
void StoreWords(void* to, Words words) { std::memcpy(to, &words, sizeof(words)); }

// Transposes four words of four rows: lines[i] has word i of each row.
[[gnu::always_inline]] inline void Transpose(const std::byte* rows, int64_t stride, Words* lines) {
  const Words a = LoadWords(rows), b = LoadWords(rows + stride);
  const Words c = LoadWords(rows + 2 * stride), d = LoadWords(rows + 3 * stride);
  const Words ab_low = __builtin_shufflevector(a, b, 0, 4, 1, 5);
  const Words ab_high = __builtin_shufflevector(a, b, 2, 6, 3, 7);
  const Words cd_low = __builtin_shufflevector(c, d, 0, 4, 1, 5);
  const Words cd_high = __builtin_shufflevector(c, d, 2, 6, 3, 7);
  lines[0] = __builtin_shufflevector(ab_low, cd_low, 0, 1, 4, 5);
  lines[1] = __builtin_shufflevector(ab_low, cd_low, 2, 3, 6, 7);
  lines[2] = __builtin_shufflevector(ab_high, cd_high, 0, 1, 4, 5);
  lines[3] = __builtin_shufflevector(ab_high, cd_high, 2, 3, 6, 7);
}

// Writes words [0, kCount) of 16 rows, kStride bytes apart, to [kCount][16]. Reads up to three more
// words of each row.
template <int kCount, int kStride>
[[gnu::always_inline]] inline void Interleave(const std::byte* rows, std::byte* to) {
  constexpr int kLine = 4 * kPanelRows;
  for (int first = 0; first < kCount; first += 4) {
    for (int row = 0; row < kPanelRows; row += 4) {
      Words lines[4];
      Transpose(rows + row * kStride + 4 * first, kStride, lines);
      std::byte* line = to + first * kLine + 4 * row;
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) {
        if (first + i < kCount) StoreWords(line + i * kLine, lines[i]);
      }
    }
  }
}

// A block column begins with its f16 and byte fields. Words follow, from this offset.
constexpr int WordsOffset(DType dtype) {
  const PanelLayout layout = LayoutOf(dtype);
  if (layout.scale_words < 0) return layout.groups;
  return layout.scale_words + (dtype == DType::kIQ4_XS ? 2 * kPanelRows : 0);
}

// Writes one row's fields: words into an array of its own, other fields into a block column,
// interleaved with the other rows'.
template <DType kDType>
class RowWriter {
 public:
  RowWriter(std::byte* column, uint32_t* words, int row)
      : column_(column), words_(words), row_(row) {}

  void Byte(int offset, uint8_t value) { column_[offset + row_] = static_cast<std::byte>(value); }
  void Half(int offset, uint16_t value) { std::memcpy(column_ + offset + 2 * row_, &value, 2); }

  void Scales(const uint8_t* bytes, int num_words) {
    std::memcpy(At(kLayout.scale_words), bytes, size_t{4} * static_cast<size_t>(num_words));
  }
  // Writes codes4 from the low or high nibbles of 32 bytes.
  void Nibbles(int group, const uint8_t* bytes, bool high) {
    WriteCodes4(group, Low4(LoadWords(bytes), high), Low4(LoadWords(bytes + 16), high));
  }
  // Writes a group of 16 bytes: elements 0..15 are their low nibbles, 16..31 the high ones.
  void SplitNibbles(int group, const uint8_t* bytes) {
    const Words words = LoadWords(bytes);
    WriteCodes4(group, Low4(words, false), Low4(words, true));
  }
  // Writes codes2: element j of the group is bits [shift, shift + 2) of bytes[j].
  void Pairs(int group, const uint8_t* bytes, int shift) {
    const Words a = LoadWords(bytes) >> shift & 0x03030303;
    const Words b = LoadWords(bytes + 16) >> shift & 0x03030303;
    const Words low = __builtin_shufflevector(a, b, 0, 4, 1, 5);
    const Words high = __builtin_shufflevector(a, b, 2, 6, 3, 7);
    const Words both = low | high << 4;
    uint32_t* to = At(GroupOffset(group) + kLayout.codes2);
    for (int i = 0; i < 2; ++i) to[i] = both[i] | both[i + 2] << 2;
  }
  // Writes `bits`: element j of the group is bit `shift` of bytes[j].
  void Bits(int group, const uint8_t* bytes, int shift) {
    static_assert(BitOfElement(4 * 3 + 2) == 8 * 2 + 3);
    uint32_t bits = 0;
    for (int i = 0; i < 8; ++i) bits |= (Load32(bytes + 4 * i) >> shift & 0x01010101) << i;
    *At(GroupOffset(group) + kLayout.bits) = bits;
  }
  // Writes `bits`: element j of the group is bit j of `word`.
  void Bits(int group, uint32_t word) {
    uint32_t bits = 0;
    for (int j = 0; j < 32; ++j) bits |= ((word >> j) & 1) << BitOfElement(j);
    *At(GroupOffset(group) + kLayout.bits) = bits;
  }
  void Codes8(const int8_t* codes) { std::memcpy(At(GroupOffset(0) + kLayout.codes8), codes, 32); }
  // Writes a scale word that stands alone.
  void ScaleWord(int offset, uint32_t word) { *At(offset) = word; }

 private:
  static constexpr PanelLayout kLayout = LayoutOf(kDType);

  static int GroupOffset(int group) { return kLayout.groups + group * kLayout.group_bytes; }
  uint32_t* At(int offset) { return words_ + (offset - WordsOffset(kDType)) / (4 * kPanelRows); }

  static Words Low4(Words words, bool high) { return words >> (high ? 4 : 0) & 0x0f0f0f0f; }
  // Word j of codes4 is words 2j and 2j + 1 of the eight.
  void WriteCodes4(int group, Words first, Words second) {
    StoreWords(At(GroupOffset(group) + kLayout.codes4),
               __builtin_shufflevector(first, second, 0, 2, 4, 6) |
                   __builtin_shufflevector(first, second, 1, 3, 5, 7) << 4);
  }

  std::byte* const column_;
  uint32_t* const words_;
  const int row_;
};

constexpr int kSecondHalf = 2 * kPanelRows;  // offset of the second f16 field

void Write(const BlockQ4_0& block, RowWriter<DType::kQ4_0>& out) {
  out.Half(0, block.d);
  out.SplitNibbles(0, block.qs);
}

void Write(const BlockQ4_1& block, RowWriter<DType::kQ4_1>& out) {
  out.Half(0, block.d);
  out.Half(kSecondHalf, block.m);
  out.SplitNibbles(0, block.qs);
}

void Write(const BlockQ5_0& block, RowWriter<DType::kQ5_0>& out) {
  out.Half(0, block.d);
  out.SplitNibbles(0, block.qs);
  out.Bits(0, Load32(block.qh));
}

void Write(const BlockQ5_1& block, RowWriter<DType::kQ5_1>& out) {
  out.Half(0, block.d);
  out.Half(kSecondHalf, block.m);
  out.SplitNibbles(0, block.qs);
  out.Bits(0, Load32(block.qh));
}

void Write(const BlockQ8_0& block, RowWriter<DType::kQ8_0>& out) {
  out.Half(0, block.d);
  out.Codes8(block.qs);
}

void Write(const BlockIQ4_NL& block, RowWriter<DType::kIQ4_NL>& out) {
  out.Half(0, block.d);
  out.SplitNibbles(0, block.qs);
}

void Write(const BlockMXFP4& block, RowWriter<DType::kMXFP4>& out) {
  out.Byte(0, block.e);
  out.SplitNibbles(0, block.qs);
}

void Write(const BlockQ2_K& block, RowWriter<DType::kQ2_K>& out) {
  out.Half(0, block.d);
  out.Half(kSecondHalf, block.dmin);
  out.Scales(block.scales, 4);
  for (int group = 0; group < 8; ++group) {
    out.Pairs(group, block.qs + 32 * (group / 4), 2 * (group % 4));
  }
}

void Write(const BlockQ3_K& block, RowWriter<DType::kQ3_K>& out) {
  out.Half(0, block.d);
  out.Scales(block.scales, 3);
  for (int group = 0; group < 8; ++group) {
    out.Pairs(group, block.qs + 32 * (group / 4), 2 * (group % 4));
    out.Bits(group, block.hmask, group);
  }
}

void Write(const BlockQ4_K& block, RowWriter<DType::kQ4_K>& out) {
  out.Half(0, block.d);
  out.Half(kSecondHalf, block.dmin);
  out.Scales(block.scales, 3);
  for (int group = 0; group < 8; ++group) {
    out.Nibbles(group, block.qs + 32 * (group / 2), group % 2 == 1);
  }
}

void Write(const BlockQ5_K& block, RowWriter<DType::kQ5_K>& out) {
  out.Half(0, block.d);
  out.Half(kSecondHalf, block.dmin);
  out.Scales(block.scales, 3);
  for (int group = 0; group < 8; ++group) {
    out.Nibbles(group, block.qs + 32 * (group / 2), group % 2 == 1);
    out.Bits(group, block.qh, group);
  }
}

void Write(const BlockQ6_K& block, RowWriter<DType::kQ6_K>& out) {
  out.Half(0, block.d);
  out.Scales(reinterpret_cast<const uint8_t*>(block.scales), 4);
  for (int group = 0; group < 8; ++group) {
    const int half = group / 4;
    const int part = group % 4;
    out.Nibbles(group, block.ql + 64 * half + 32 * (part % 2), part >= 2);
    out.Pairs(group, block.qh + 32 * half, 2 * part);
  }
}

void Write(const BlockIQ4_XS& block, RowWriter<DType::kIQ4_XS>& out) {
  out.Half(0, block.d);
  const PanelLayout layout = LayoutOf(DType::kIQ4_XS);
  out.Half(layout.scale_words, block.scales_h);
  out.ScaleWord(layout.scale_words + kSecondHalf, Load32(block.scales_l));
  for (int group = 0; group < 8; ++group) out.SplitNibbles(group, block.qs + 16 * group);
}

// Column by column, so that the panel is written once, in whole cache lines.
template <DType kDType, typename Block>
void PackBlocks(int64_t cols, const std::byte* rows, std::byte* panel) {
  constexpr PanelLayout kLayout = LayoutOf(kDType);
  static_assert(kLayout.bytes == kPanelRows * sizeof(Block));
  constexpr int kWords = (kLayout.bytes - WordsOffset(kDType)) / (4 * kPanelRows);
  constexpr int kStored = (kWords + 3) / 4 * 4;  // Interleave reads whole Words
  uint32_t words[kPanelRows][kStored] = {};
  const auto row_bytes = static_cast<int64_t>(RowBytes(kDType, cols));
  for (int64_t at = 0; at < row_bytes; at += static_cast<int64_t>(sizeof(Block))) {
    for (int row = 0; row < kPanelRows; ++row) {
      RowWriter<kDType> out(panel, words[row], row);
      Write(*reinterpret_cast<const Block*>(rows + row * row_bytes + at), out);
    }
    Interleave<kWords, sizeof(words[0])>(reinterpret_cast<const std::byte*>(words),
                                         panel + WordsOffset(kDType));
    panel += kLayout.bytes;
  }
}

// [16][words] to [words][16].
void PackWords(int64_t words, const std::byte* rows, int64_t row_bytes, std::byte* panel) {
  constexpr int64_t kLine = 4 * kPanelRows;
  int64_t first = 0;
  for (; first + 4 <= words; first += 4, rows += 16, panel += 4 * kLine) {
    for (int row = 0; row < kPanelRows; row += 4) {
      Words lines[4];
      Transpose(rows + row * row_bytes, row_bytes, lines);
      for (int i = 0; i < 4; ++i) StoreWords(panel + i * kLine + 4 * row, lines[i]);
    }
  }
  for (; first < words; ++first, rows += 4) {
    for (int row = 0; row < kPanelRows; ++row, panel += 4) {
      std::memcpy(panel, rows + row * row_bytes, 4);
    }
  }
}

void PackF32(int64_t cols, const std::byte* rows, std::byte* panel) {
  PackWords(cols, rows, 4 * cols, panel);
}

// [16][cols] to [cols][16].
void PackF16(int64_t cols, const std::byte* rows, std::byte* panel) {
  for (int64_t k = 0; k < cols; ++k) {
    for (int row = 0; row < kPanelRows; ++row, panel += 2) {
      std::memcpy(panel, rows + (row * cols + k) * 2, 2);
    }
  }
}

// [16][cols] to [cols / 2][16][2]. A missing last column is zero.
void PackPairs(int64_t cols, const std::byte* rows, std::byte* panel) {
  PackWords(cols / 2, rows, 2 * cols, panel);
  if (cols % 2 == 0) return;
  panel += cols / 2 * 4 * kPanelRows;
  for (int row = 0; row < kPanelRows; ++row, panel += 4) {
    uint32_t pair = 0;
    std::memcpy(&pair, rows + (row * cols + cols - 1) * 2, 2);
    std::memcpy(panel, &pair, sizeof(pair));
  }
}

}  // namespace

void PackPanel(DType dtype, int64_t cols, const std::byte* rows, std::byte* panel) {
  switch (dtype) {
    case DType::kF32:
      return PackF32(cols, rows, panel);
    case DType::kF16:
      return PackF16(cols, rows, panel);
    case DType::kBF16:
      return PackPairs(cols, rows, panel);
    case DType::kQ4_0:
      return PackBlocks<DType::kQ4_0, BlockQ4_0>(cols, rows, panel);
    case DType::kQ4_1:
      return PackBlocks<DType::kQ4_1, BlockQ4_1>(cols, rows, panel);
    case DType::kQ5_0:
      return PackBlocks<DType::kQ5_0, BlockQ5_0>(cols, rows, panel);
    case DType::kQ5_1:
      return PackBlocks<DType::kQ5_1, BlockQ5_1>(cols, rows, panel);
    case DType::kQ8_0:
      return PackBlocks<DType::kQ8_0, BlockQ8_0>(cols, rows, panel);
    case DType::kQ2_K:
      return PackBlocks<DType::kQ2_K, BlockQ2_K>(cols, rows, panel);
    case DType::kQ3_K:
      return PackBlocks<DType::kQ3_K, BlockQ3_K>(cols, rows, panel);
    case DType::kQ4_K:
      return PackBlocks<DType::kQ4_K, BlockQ4_K>(cols, rows, panel);
    case DType::kQ5_K:
      return PackBlocks<DType::kQ5_K, BlockQ5_K>(cols, rows, panel);
    case DType::kQ6_K:
      return PackBlocks<DType::kQ6_K, BlockQ6_K>(cols, rows, panel);
    case DType::kIQ4_NL:
      return PackBlocks<DType::kIQ4_NL, BlockIQ4_NL>(cols, rows, panel);
    case DType::kIQ4_XS:
      return PackBlocks<DType::kIQ4_XS, BlockIQ4_XS>(cols, rows, panel);
    case DType::kMXFP4:
      return PackBlocks<DType::kMXFP4, BlockMXFP4>(cols, rows, panel);
    case DType::kF8E4M3:
    case DType::kI8:
    case DType::kI8Blocks:
    case DType::kI32:
    case DType::kI64:
      break;
  }
  CHECK_MSG(false, "this type cannot be a weight's");
}

}  // namespace tokamak::cpu
