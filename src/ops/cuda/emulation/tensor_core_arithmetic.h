// The sums of Hopper's tensor cores, to the bit, as the package mmasim models them.
//
// One sum takes a block of products and the accumulator. All are aligned to the largest exponent
// among them; a product's is the sum of its operands' exponents, whatever its own magnitude. Each
// is cut off, toward zero, F bits below that exponent. What is left is added exactly, and the sum
// is cut off, toward zero, to the accumulator's precision.
//   bf16, f16    F = 25, up to 16 products in a block, f32 results
//   8 bits       F = 13, 32 products in a block, 13 fraction bits in the result (wgmma)
// A NaN is always 0x7FFFFFFF, and a sum of zero is +0.
//
// Hopper has no 8-bit mma.sync: for sm_90a, ptxas (13.0) converts both operands to f16, multiplies
// them by two HMMA that start from zero, the first with elements 0 and 1 of every four along k and
// the second with elements 2 and 3, and adds the accumulator at the end by FADD.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tokamak::cuda::emulation {

enum class ElementType : uint8_t { kBf16, kF16, kE4m3, kE5m2 };
constexpr bool Is8Bit(ElementType type) {
  return type == ElementType::kE4m3 || type == ElementType::kE5m2;
}

// Raw elements, 2 bytes or 1 byte each. Strides are in elements.
struct Matrix {
  const void* elements;
  ElementType type;
  ptrdiff_t row_stride;
  ptrdiff_t column_stride = 1;
};

enum class Instruction : uint8_t {
  kMma,    // mma.sync: k = 8 or 16 elements of 2 bytes, 16 or 32 elements of 1 byte
  kWgmma,  // wgmma.mma_async: 32 bytes along k
};

enum class Arithmetic : uint8_t {
  kHopper,
  kInOrder,  // starts from the accumulator, multiply-adds in f32 along k: fast, for long suites
};

struct TileShape {
  int m, n, k;  // any m and n; k is the instruction's
};

// accumulators[m, n] += Σ_k a[m, k] · b[k, n], as one instruction does it. `accumulators` is dense
// and row-major. An element's bits depend on its row of a, its column of b and its accumulator
// only. Both types have 16 bits and are equal, or both have 8. Uses about 10 KiB of stack and no
// heap.
void MultiplyAccumulate(Instruction instruction, Arithmetic arithmetic, TileShape shape,
                        const Matrix& a, const Matrix& b, float* accumulators);

}  // namespace tokamak::cuda::emulation
