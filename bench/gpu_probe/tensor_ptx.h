// Tensor core instructions as thin wrappers of PTX (sm_90a).
#pragma once

#include <cstdint>

#include "bench/gpu_probe/tma_ptx.h"
#include "bench/gpu_probe/wgmma_ptx.h"

namespace probe {

// D[16, 8] = A[16, 32 bytes of k] B[8, 32 bytes of k]^T + D: m16n8k16 of bf16 and f16, m16n8k32 of
// e4m3. With g = lane / 4 and t = lane % 4, a[0..3] are bytes 4 t of rows g, g + 8 and bytes
// 16 + 4 t of the same rows; b[0..1] are bytes 4 t and 16 + 4 t of row g of B.
template <Type kType>
__device__ __forceinline__ void Mma(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
#define PROBE_MMA(SHAPE)                                         \
  asm volatile("mma.sync.aligned." SHAPE                         \
               " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, " \
               "{%0, %1, %2, %3};\n"                             \
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])  \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]))
  if constexpr (kType == Type::kBf16) {
    PROBE_MMA("m16n8k16.row.col.f32.bf16.bf16.f32");
  } else if constexpr (kType == Type::kF16) {
    PROBE_MMA("m16n8k16.row.col.f32.f16.f16.f32");
  } else {
    PROBE_MMA("m16n8k32.row.col.f32.e4m3.e4m3.f32");
  }
#undef PROBE_MMA
}

// The same over 16 bytes of k: m16n8k8, for bf16 and f16 only.
template <Type kType>
__device__ __forceinline__ void MmaHalf(float (&d)[4], uint32_t a0, uint32_t a1, uint32_t b0) {
#define PROBE_MMA(SHAPE)                                                                          \
  asm volatile("mma.sync.aligned." SHAPE " {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};\n" \
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                                   \
               : "r"(a0), "r"(a1), "r"(b0))
  if constexpr (kType == Type::kBf16) {
    PROBE_MMA("m16n8k8.row.col.f32.bf16.bf16.f32");
  } else {
    PROBE_MMA("m16n8k8.row.col.f32.f16.f16.f32");
  }
#undef PROBE_MMA
}

// How an operand of wgmma lies in shared memory, K-major.
//   none: 8 x 16-byte core matrices; `leading` bytes between neighbours in k, `stride` in rows.
//   128B: rows of 128 bytes, swizzled, groups of 8 rows `stride` = 1024 bytes apart.
__device__ __forceinline__ uint64_t PlainDescriptor(const void* tile, int leading, int stride) {
  return static_cast<uint64_t>((SharedAddress(tile) & 0x3FFFF) >> 4) |
         static_cast<uint64_t>(leading >> 4) << 16 | static_cast<uint64_t>(stride >> 4) << 32;
}

__device__ __forceinline__ uint64_t Swizzled128Descriptor(uint32_t address) {
  return static_cast<uint64_t>((address & 0x3FFFF) >> 4) | uint64_t{1} << 16 |
         uint64_t{1024 >> 4} << 32 | uint64_t{1} << 62;
}

__device__ __forceinline__ void WgmmaFence() {
  asm volatile("wgmma.fence.sync.aligned;\n" ::: "memory");
}

__device__ __forceinline__ void WgmmaCommit() {
  asm volatile("wgmma.commit_group.sync.aligned;\n" ::: "memory");
}

// Waits until at most `kPending` groups are in flight.
template <int kPending>
__device__ __forceinline__ void WgmmaWait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;\n" ::"n"(kPending) : "memory");
}

// Keeps the compiler from moving accumulators while wgmma writes them.
template <int kCount>
__device__ __forceinline__ void PinRegisters(float (&values)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(values[i])::"memory");
}

// Transposes an 8 x 8 matrix of 16-bit values held as in a fragment (row lane / 4, two columns).
__device__ __forceinline__ uint32_t Transpose8x8(uint32_t value) {
  uint32_t out;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;\n" : "=r"(out) : "r"(value));
  return out;
}

}  // namespace probe
