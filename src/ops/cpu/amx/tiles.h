// AMX's tile instructions, with tile numbers as template arguments. Kernels take them as a class,
// so that a test can substitute an emulation.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tokamak::cpu {
namespace {  // NOLINT(google-build-namespaces): one copy per ISA, for its file alone

// The operand of LDTILECFG (Intel 64 and IA-32 manual, volume 1, 18.1.2).
struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t rows[16] = {};

  void Set(int tile, int num_rows, int bytes) {
    rows[tile] = static_cast<uint8_t>(num_rows);
    row_bytes[tile] = static_cast<uint16_t>(bytes);
  }
};
static_assert(sizeof(TileConfig) == 64);

// Inline assembly: GCC 12's intrinsics take tile numbers only as literals and do not declare that
// loads read memory.
struct Tiles {
  static void Configure(const TileConfig& config) { asm volatile("ldtilecfg %0" : : "m"(config)); }
  // Puts the thread back into the state without tiles.
  static void Release() { asm volatile("tilerelease"); }

  template <int kTile>
  static void Zero() {
    asm volatile("tilezero %%tmm%c0" : : "i"(kTile));
  }
  // Rows are `stride` bytes apart.
  template <int kTile>
  static void Load(const void* source, int64_t stride) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2"
                 :
                 : "r"(source), "r"(stride), "i"(kTile)
                 : "memory");
  }
  template <int kTile>
  static void Store(void* destination, int64_t stride) {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)"
                 :
                 : "r"(destination), "r"(stride), "i"(kTile)
                 : "memory");
  }
  // C[m][n] += Σ A[m][j][b] · B[j][n][b] over j and the four bytes b: signed bytes, sums in i32.
  template <int kC, int kA, int kB>
  static void AddDotsInt8() {
    asm volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kC), "i"(kA), "i"(kB));
  }
  // The same for pairs of bf16, in f32 (cpu/bf16_kernels.h).
  template <int kC, int kA, int kB>
  static void AddDotsBf16() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kC), "i"(kA), "i"(kB));
  }
};

}  // namespace
}  // namespace tokamak::cpu
