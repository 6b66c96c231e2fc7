// wgmma.mma_async by the width N of the tile: D[64, N] (+)= A[64, 32 bytes of k] B[N, 32 bytes
// of k]^T, both operands in shared memory, K-major, f32 accumulators. A thread's d[4 j + 2 i + c]
// is row 16 (warp % 4) + lane / 4 + 8 i, column 8 j + 2 (lane % 4) + c.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "bench/gpu_probe/element_type.h"

namespace probe {

// Run<kType>(d, a, b, accumulate) computes D = A B, or D += A B if `accumulate` is 1.
template <int N>
struct Wgmma;

// clang-format off
// The accumulators of an asm statement: their operand numbers, and the operands themselves.
#define PROBE_NUMBERS4 "%0, %1, %2, %3"
#define PROBE_NUMBERS8 PROBE_NUMBERS4 ", %4, %5, %6, %7"
#define PROBE_NUMBERS16 PROBE_NUMBERS8 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define PROBE_NUMBERS32 PROBE_NUMBERS16 \
  ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define PROBE_NUMBERS64 PROBE_NUMBERS32 \
  ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47" \
  ", %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define PROBE_NUMBERS128 PROBE_NUMBERS64 \
  ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79" \
  ", %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95" \
  ", %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109" \
  ", %110, %111, %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123" \
  ", %124, %125, %126, %127"
#define PROBE_D4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define PROBE_D16(i) PROBE_D4(i), PROBE_D4(i + 4), PROBE_D4(i + 8), PROBE_D4(i + 12)
#define PROBE_D64(i) PROBE_D16(i), PROBE_D16(i + 16), PROBE_D16(i + 32), PROBE_D16(i + 48)
// clang-format on

#define PROBE_WGMMA_BODY(N, SHAPE, TAIL, NUMBERS, A, B, P, ...)                         \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " P                                    \
               ", 0;\n"                                                                 \
               "wgmma.mma_async.sync.aligned.m64n" #N SHAPE " {" NUMBERS "}, " A ", " B \
               ", p, 1, 1" TAIL ";\n}\n"                                                \
               : __VA_ARGS__                                                            \
               : "l"(a), "l"(b), "r"(accumulate))

// COUNT: a thread's accumulators, N / 2. After it: the numbers of a, b and `accumulate`, then the
// accumulators.
#define PROBE_WGMMA(N, COUNT, ...)                                                             \
  template <>                                                                                  \
  struct Wgmma<N> {                                                                            \
    template <Type kType>                                                                      \
    static __device__ __forceinline__ void Run(float (&d)[COUNT], uint64_t a, uint64_t b,      \
                                               int accumulate) {                               \
      if constexpr (kType == Type::kBf16) {                                                    \
        PROBE_WGMMA_BODY(N, "k16.f32.bf16.bf16", ", 0, 0", PROBE_NUMBERS##COUNT, __VA_ARGS__); \
      } else if constexpr (kType == Type::kF16) {                                              \
        PROBE_WGMMA_BODY(N, "k16.f32.f16.f16", ", 0, 0", PROBE_NUMBERS##COUNT, __VA_ARGS__);   \
      } else {                                                                                 \
        PROBE_WGMMA_BODY(N, "k32.f32.e4m3.e4m3", "", PROBE_NUMBERS##COUNT, __VA_ARGS__);       \
      }                                                                                        \
    }                                                                                          \
  };

PROBE_WGMMA(8, 4, "%4", "%5", "%6", PROBE_D4(0))
PROBE_WGMMA(16, 8, "%8", "%9", "%10", PROBE_D4(0), PROBE_D4(4))
PROBE_WGMMA(32, 16, "%16", "%17", "%18", PROBE_D16(0))
PROBE_WGMMA(64, 32, "%32", "%33", "%34", PROBE_D16(0), PROBE_D16(16))
PROBE_WGMMA(128, 64, "%64", "%65", "%66", PROBE_D64(0))
PROBE_WGMMA(256, 128, "%128", "%129", "%130", PROBE_D64(0), PROBE_D64(64))

#undef PROBE_WGMMA
#undef PROBE_WGMMA_BODY
#undef PROBE_D64
#undef PROBE_D16
#undef PROBE_D4
#undef PROBE_NUMBERS128
#undef PROBE_NUMBERS64
#undef PROBE_NUMBERS32
#undef PROBE_NUMBERS16
#undef PROBE_NUMBERS8
#undef PROBE_NUMBERS4

}  // namespace probe
