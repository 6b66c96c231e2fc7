// Memory layouts of the GGUF block formats, little-endian. Each block stands for 32 or 256
// consecutive elements of a row; "f16" fields are IEEE binary16 bit patterns (quant/half.h).
//
// In the 32-element formats with 4-bit codes, byte j of `qs` holds element j in its low nibble and
// element j + 16 in its high nibble. In the 256-element formats ("super-blocks"), elements come in
// groups of 16 or 32 with small integer scales, themselves scaled by one or two f16 numbers.
//
// Blocks in a file or a packed buffer may start at any byte: copy them (memcpy) before use.
#pragma once

#include <array>
#include <cstdint>

namespace tokamak {

inline constexpr int kBlockElements = 32;
inline constexpr int kSuperBlockElements = 256;

// x = d · (q - 8), q in [0, 15].
struct BlockQ4_0 {
  uint16_t d;  // f16
  uint8_t qs[16];
};
static_assert(sizeof(BlockQ4_0) == 18);

// x = d · q + m, q in [0, 15].
struct BlockQ4_1 {
  uint16_t d;  // f16
  uint16_t m;  // f16
  uint8_t qs[16];
};
static_assert(sizeof(BlockQ4_1) == 20);

// x = d · (q - 16), q in [0, 31]. The fifth bit of element j is bit j of the 32-bit number `qh`.
struct BlockQ5_0 {
  uint16_t d;  // f16
  uint8_t qh[4];
  uint8_t qs[16];
};
static_assert(sizeof(BlockQ5_0) == 22);

// x = d · q + m, q in [0, 31], fifth bits as in Q5_0.
struct BlockQ5_1 {
  uint16_t d;  // f16
  uint16_t m;  // f16
  uint8_t qh[4];
  uint8_t qs[16];
};
static_assert(sizeof(BlockQ5_1) == 24);

// x = d · q.
struct BlockQ8_0 {
  uint16_t d;  // f16
  int8_t qs[32];
};
static_assert(sizeof(BlockQ8_0) == 34);

// 16 groups of 16: x = (d · scale) · q - (dmin · min), q in [0, 3]. Byte g of `scales` holds the
// scale of group g in its low nibble and its min in the high one. Elements 128·h + 32·s + j are in
// bits [2s, 2s + 2) of qs[32·h + j].
struct BlockQ2_K {
  uint8_t scales[16];
  uint8_t qs[64];
  uint16_t d;     // f16
  uint16_t dmin;  // f16
};
static_assert(sizeof(BlockQ2_K) == 84);

// 16 groups of 16: x = (d · (scale - 32)) · q, q in [-4, 3]. The low two bits are stored as in
// Q2_K; the third bit of element 32·s + j is bit s of hmask[j], and q = low + 4·bit - 4. For the
// 6-bit scales see UnpackScalesQ3_K.
struct BlockQ3_K {
  uint8_t hmask[32];
  uint8_t qs[64];
  uint8_t scales[12];
  uint16_t d;  // f16
};
static_assert(sizeof(BlockQ3_K) == 110);

// 8 groups of 32: x = (d · scale) · q - (dmin · min), q in [0, 15]. The low and high nibbles of
// qs[32·p + j] are elements 64·p + j and 64·p + 32 + j. For `scales` see UnpackScalesQ4_K.
struct BlockQ4_K {
  uint16_t d;     // f16
  uint16_t dmin;  // f16
  uint8_t scales[12];
  uint8_t qs[128];
};
static_assert(sizeof(BlockQ4_K) == 144);

// Q4_K with q in [0, 31]; the fifth bit of element 32·g + j is bit g of qh[j].
struct BlockQ5_K {
  uint16_t d;     // f16
  uint16_t dmin;  // f16
  uint8_t scales[12];
  uint8_t qh[32];
  uint8_t qs[128];
};
static_assert(sizeof(BlockQ5_K) == 176);

// 16 groups of 16: x = (d · scale) · (q - 32), q in [0, 63]. In each half h of 128 elements, the
// low four bits of element 32·s + j are in ql[64·h + 32·(s % 2) + j], in the low nibble if s < 2;
// the high two bits are bits [2s, 2s + 2) of qh[32·h + j].
struct BlockQ6_K {
  uint8_t ql[128];
  uint8_t qh[64];
  int8_t scales[16];
  uint16_t d;  // f16
};
static_assert(sizeof(BlockQ6_K) == 210);

// x = d · kIQ4Values[q].
struct BlockIQ4_NL {
  uint16_t d;  // f16
  uint8_t qs[16];
};
static_assert(sizeof(BlockIQ4_NL) == 18);

// 8 groups of 32: x = (d · (scale - 32)) · kIQ4Values[q]. The low four bits of scale g are nibble g
// of `scales_l`, its high two bits are bits [2g, 2g + 2) of `scales_h`. The codes of group g are
// stored as in IQ4_NL, at qs[16·g].
struct BlockIQ4_XS {
  uint16_t d;  // f16
  uint16_t scales_h;
  uint8_t scales_l[4];
  uint8_t qs[128];
};
static_assert(sizeof(BlockIQ4_XS) == 136);

// x = 2^(e - 128) · kMXFP4Values[q]: OCP Microscaling FP4 (e2m1 elements, e8m0 scale). The values
// are stored doubled, as integers, and the scale halved. e = 255, which is NaN for OCP, is 2^127
// here, as in GGUF.
struct BlockMXFP4 {
  uint8_t e;
  uint8_t qs[16];
};
static_assert(sizeof(BlockMXFP4) == 17);

// The non-uniform code book of IQ4_NL and IQ4_XS.
inline constexpr std::array<int8_t, 16> kIQ4Values = {-127, -104, -83, -65, -49, -35, -22, -10,
                                                      1,    13,   25,  38,  53,  69,  89,  113};

// Twice the e2m1 values 0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives. GGUF reads -0 as 0.
inline constexpr std::array<int8_t, 16> kMXFP4Values = {0, 1,  2,  3,  4,  6,  8,  12,
                                                        0, -1, -2, -3, -4, -6, -8, -12};

// Q4_K and Q5_K: eight 6-bit scales and eight 6-bit mins in 12 bytes. Groups 0..3: the low six bits
// of bytes 0..3 (scales) and 4..7 (mins). Groups 4..7: the low four bits are the nibbles of bytes
// 8..11, the high two bits are the top bits of bytes 0..3 and 4..7.
inline void UnpackScalesQ4_K(const uint8_t packed[12], uint8_t scales[8], uint8_t mins[8]) {
  for (int i = 0; i < 4; ++i) {
    scales[i] = packed[i] & 0x3f;
    mins[i] = packed[i + 4] & 0x3f;
    scales[i + 4] = static_cast<uint8_t>((packed[i + 8] & 0x0f) | ((packed[i] >> 2) & 0x30));
    mins[i + 4] = static_cast<uint8_t>((packed[i + 8] >> 4) | ((packed[i + 4] >> 2) & 0x30));
  }
}

// Q3_K: sixteen 6-bit scales in 12 bytes, returned with their offset of 32 removed. Low four bits:
// scales 0..7 in the low nibbles of bytes 0..7, scales 8..15 in the high ones. High two bits: scale
// 4·k + i in bits [2k, 2k + 2) of byte 8 + i.
inline void UnpackScalesQ3_K(const uint8_t packed[12], int8_t scales[16]) {
  for (int i = 0; i < 16; ++i) {
    const int low = i < 8 ? packed[i] & 0x0f : packed[i - 8] >> 4;
    const int high = (packed[8 + i % 4] >> (2 * (i / 4))) & 3;
    scales[i] = static_cast<int8_t>((low | (high << 4)) - 32);
  }
}

}  // namespace tokamak
