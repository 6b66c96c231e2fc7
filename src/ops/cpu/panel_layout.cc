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

// Writes one row's fields into a block column, interleaved with the other rows'.
class RowWriter {
 public:
  RowWriter(DType dtype, std::byte* column, int row)
      : layout_(LayoutOf(dtype)), column_(column), row_(row) {}

  void Byte(int offset, uint8_t value) { column_[offset + row_] = static_cast<std::byte>(value); }
  void Half(int offset, uint16_t value) { std::memcpy(column_ + offset + 2 * row_, &value, 2); }
  void Word(int offset, int index, uint32_t value) {
    std::memcpy(column_ + offset + 4 * (kPanelRows * index + row_), &value, 4);
  }

  void Scales(const uint8_t* bytes, int num_words) {
    for (int i = 0; i < num_words; ++i) Word(layout_.scale_words, i, Load32(bytes + 4 * i));
  }
  // Writes words [begin, begin + count) of codes4 from the low or high nibbles of 8 · count bytes.
  void Nibbles(int group, int begin, int count, const uint8_t* bytes, bool high) {
    const int shift = high ? 4 : 0;
    for (int i = 0; i < count; ++i) {
      const uint32_t first = (Load32(bytes + 8 * i) >> shift) & 0x0f0f0f0f;
      const uint32_t second = (Load32(bytes + 8 * i + 4) >> shift) & 0x0f0f0f0f;
      Word(GroupOffset(group) + layout_.codes4, begin + i, first | (second << 4));
    }
  }
  // Writes a group of 16 bytes: elements 0..15 are their low nibbles, 16..31 the high ones.
  void SplitNibbles(int group, const uint8_t* bytes) {
    Nibbles(group, 0, 2, bytes, false);
    Nibbles(group, 2, 2, bytes, true);
  }
  // Writes codes2: element j of the group is bits [shift, shift + 2) of bytes[j].
  void Pairs(int group, const uint8_t* bytes, int shift) {
    for (int i = 0; i < 2; ++i) {
      uint32_t word = 0;
      for (int v = 0; v < 4; ++v) {
        word |= ((Load32(bytes + 16 * i + 4 * v) >> shift) & 0x03030303) << (2 * v);
      }
      Word(GroupOffset(group) + layout_.codes2, i, word);
    }
  }
  // Writes `bits`: element j of the group is bit `shift` of bytes[j].
  void Bits(int group, const uint8_t* bytes, int shift) {
    uint32_t bits = 0;
    for (int j = 0; j < 32; ++j) {
      bits |= static_cast<uint32_t>((bytes[j] >> shift) & 1) << BitOfElement(j);
    }
    Word(GroupOffset(group) + layout_.bits, 0, bits);
  }
  // Writes `bits`: element j of the group is bit j of `word`.
  void Bits(int group, uint32_t word) {
    uint32_t bits = 0;
    for (int j = 0; j < 32; ++j) bits |= ((word >> j) & 1) << BitOfElement(j);
    Word(GroupOffset(group) + layout_.bits, 0, bits);
  }
  void Codes8(const int8_t* codes) {
    for (int i = 0; i < 8; ++i) {
      Word(GroupOffset(0) + layout_.codes8, i,
           Load32(reinterpret_cast<const uint8_t*>(codes) + 4 * i));
    }
  }

 private:
  int GroupOffset(int group) const { return layout_.groups + group * layout_.group_bytes; }

  const PanelLayout layout_;
  std::byte* const column_;
  const int row_;
};

constexpr int kSecondHalf = 2 * kPanelRows;  // offset of the second f16 field

void Write(const BlockQ4_0& block, RowWriter& out) {
  out.Half(0, block.d);
  out.SplitNibbles(0, block.qs);
}

void Write(const BlockQ4_1& block, RowWriter& out) {
  out.Half(0, block.d);
  out.Half(kSecondHalf, block.m);
  out.SplitNibbles(0, block.qs);
}

void Write(const BlockQ5_0& block, RowWriter& out) {
  out.Half(0, block.d);
  out.SplitNibbles(0, block.qs);
  out.Bits(0, Load32(block.qh));
}

void Write(const BlockQ5_1& block, RowWriter& out) {
  out.Half(0, block.d);
  out.Half(kSecondHalf, block.m);
  out.SplitNibbles(0, block.qs);
  out.Bits(0, Load32(block.qh));
}

void Write(const BlockQ8_0& block, RowWriter& out) {
  out.Half(0, block.d);
  out.Codes8(block.qs);
}

void Write(const BlockIQ4_NL& block, RowWriter& out) {
  out.Half(0, block.d);
  out.SplitNibbles(0, block.qs);
}

void Write(const BlockMXFP4& block, RowWriter& out) {
  out.Byte(0, block.e);
  out.SplitNibbles(0, block.qs);
}

void Write(const BlockQ2_K& block, RowWriter& out) {
  out.Half(0, block.d);
  out.Half(kSecondHalf, block.dmin);
  out.Scales(block.scales, 4);
  for (int group = 0; group < 8; ++group) {
    out.Pairs(group, block.qs + 32 * (group / 4), 2 * (group % 4));
  }
}

void Write(const BlockQ3_K& block, RowWriter& out) {
  out.Half(0, block.d);
  out.Scales(block.scales, 3);
  for (int group = 0; group < 8; ++group) {
    out.Pairs(group, block.qs + 32 * (group / 4), 2 * (group % 4));
    out.Bits(group, block.hmask, group);
  }
}

void Write(const BlockQ4_K& block, RowWriter& out) {
  out.Half(0, block.d);
  out.Half(kSecondHalf, block.dmin);
  out.Scales(block.scales, 3);
  for (int group = 0; group < 8; ++group) {
    out.Nibbles(group, 0, 4, block.qs + 32 * (group / 2), group % 2 == 1);
  }
}

void Write(const BlockQ5_K& block, RowWriter& out) {
  out.Half(0, block.d);
  out.Half(kSecondHalf, block.dmin);
  out.Scales(block.scales, 3);
  for (int group = 0; group < 8; ++group) {
    out.Nibbles(group, 0, 4, block.qs + 32 * (group / 2), group % 2 == 1);
    out.Bits(group, block.qh, group);
  }
}

void Write(const BlockQ6_K& block, RowWriter& out) {
  out.Half(0, block.d);
  out.Scales(reinterpret_cast<const uint8_t*>(block.scales), 4);
  for (int group = 0; group < 8; ++group) {
    const int half = group / 4;
    const int part = group % 4;
    out.Nibbles(group, 0, 4, block.ql + 64 * half + 32 * (part % 2), part >= 2);
    out.Pairs(group, block.qh + 32 * half, 2 * part);
  }
}

void Write(const BlockIQ4_XS& block, RowWriter& out) {
  out.Half(0, block.d);
  const PanelLayout layout = LayoutOf(DType::kIQ4_XS);
  out.Half(layout.scale_words, block.scales_h);
  out.Word(layout.scale_words + kSecondHalf, 0, Load32(block.scales_l));
  for (int group = 0; group < 8; ++group) out.SplitNibbles(group, block.qs + 16 * group);
}

template <DType kDType, typename Block>
void PackBlocks(int64_t cols, const std::byte* rows, std::byte* panel) {
  constexpr PanelLayout kLayout = LayoutOf(kDType);
  static_assert(kLayout.bytes == kPanelRows * sizeof(Block));
  const int64_t num_blocks = cols / kLayout.elements;
  for (int row = 0; row < kPanelRows; ++row) {
    for (int64_t i = 0; i < num_blocks; ++i) {
      Block block;
      std::memcpy(&block, rows, sizeof(Block));
      rows += sizeof(Block);
      RowWriter out(kDType, panel + i * kLayout.bytes, row);
      Write(block, out);
    }
  }
}

// [16][cols] to [cols][16].
template <typename T>
void PackPlain(int64_t cols, const std::byte* rows, std::byte* panel) {
  for (int64_t k = 0; k < cols; ++k) {
    for (int row = 0; row < kPanelRows; ++row) {
      std::memcpy(panel, rows + (row * cols + k) * static_cast<int64_t>(sizeof(T)), sizeof(T));
      panel += sizeof(T);
    }
  }
}

// [16][cols] to [cols / 2][16][2]. A missing last column is zero.
void PackPairs(int64_t cols, const std::byte* rows, std::byte* panel) {
  for (int64_t k = 0; k < cols; k += 2) {
    const size_t bytes = k + 1 < cols ? 4 : 2;
    for (int row = 0; row < kPanelRows; ++row) {
      uint32_t pair = 0;
      std::memcpy(&pair, rows + (row * cols + k) * 2, bytes);
      std::memcpy(panel, &pair, sizeof(pair));
      panel += sizeof(pair);
    }
  }
}

}  // namespace

void PackPanel(DType dtype, int64_t cols, const std::byte* rows, std::byte* panel) {
  switch (dtype) {
    case DType::kF32:
      return PackPlain<uint32_t>(cols, rows, panel);
    case DType::kF16:
      return PackPlain<uint16_t>(cols, rows, panel);
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
    case DType::kI8:
    case DType::kI8Blocks:
    case DType::kI32:
    case DType::kI64:
      break;
  }
  CHECK_MSG(false, "integer types cannot be weights");
}

}  // namespace tokamak::cpu
