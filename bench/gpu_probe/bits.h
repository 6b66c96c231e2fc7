// Shared by the files of section "bits": products as one chain of tensor core instructions over
// ascending k, and the comparison of their bits.
#pragma once

#include <bit>

#include "bench/gpu_probe/bits_model.h"
#include "bench/gpu_probe/probe.h"

namespace probe {

// out[x * x_stride + y * y_stride] = dot of row x of X and row y of Y, each of `bytes` bytes, plus
// the accumulator at the same place of `start` (null: zero).
struct Chain {
  Type type;
  const uint8_t* x;
  const uint8_t* y;
  int x_rows, y_rows, bytes;
  const float* start;
  float* out;
  int x_stride, y_stride;
};
void RunMma(const Chain& chain);  // m16n8k16 (e4m3: m16n8k32); x_rows % 16 == 0, y_rows % 8 == 0
void RunMmaHalf(const Chain& chain);  // m16n8k8, bf16 and f16
// `tile`: wgmma's N, 8, 64 or 256; X is the 64-row operand. x_rows % 64 == 0, y_rows % tile == 0.
void RunWgmma(const Chain& chain, int tile);

struct Difference {
  unsigned long long count;  // values whose bits differ
  unsigned long long nans;   // those of them where both are NaN
  unsigned int max_ulp;      // over pairs without a NaN
};
Difference Compare(const float* a, const float* b, size_t count);
// The same for bf16 `a` against f32 `b` rounded to bf16.
Difference CompareBf16(const uint16_t* a, const float* b, size_t count);

inline uint32_t Bits(float value) { return std::bit_cast<uint32_t>(value); }

// A copy of `values` on the device.
template <typename T>
DeviceMemory Upload(const std::vector<T>& values) {
  DeviceMemory memory(values.size() * sizeof(T));
  PROBE_CHECK(cudaMemcpy(memory.As(), values.data(), memory.bytes(), cudaMemcpyHostToDevice));
  return memory;
}

// Whether cuBLASLt's algorithms without split-K give the bits of mma.sync's chain.
void CompareCublas(Report& report, Type type);
// Distances of ex2, rsqrt and rcp from the correctly rounded result.
void MeasureApproximations(Report& report);

}  // namespace probe
