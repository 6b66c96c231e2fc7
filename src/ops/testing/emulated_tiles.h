// Emulates the instructions of cpu/amx/tiles.h element by element, so that any AVX-512 machine can
// test how the AMX kernels address memory.
#pragma once

#include <cstring>

#include "ops/cpu/amx/tiles.h"

namespace tokamak::cpu {
namespace {  // NOLINT(google-build-namespaces): for one file alone

struct EmulatedTileState {
  TileConfig config = {.palette = 0};
  char tiles[8][16][64] = {};
};

class EmulatedTiles {
 public:
  static void Configure(const TileConfig& config) {
    state_ = {};
    state_.config = config;
    for (int tile = 0; tile < 8; ++tile) Demand(Rows(tile) <= 16 && RowBytes(tile) <= 64);
  }
  static void Release() { state_ = {}; }

  template <int kTile>
  static void Zero() {
    std::memset(state_.tiles[kTile], 0, sizeof(state_.tiles[kTile]));
  }
  template <int kTile>
  static void Load(const void* source, int64_t stride) {
    Demand(Rows(kTile) > 0);
    Zero<kTile>();
    for (int row = 0; row < Rows(kTile); ++row) {
      std::memcpy(state_.tiles[kTile][row], static_cast<const char*>(source) + row * stride,
                  static_cast<size_t>(RowBytes(kTile)));
    }
  }
  template <int kTile>
  static void Store(void* destination, int64_t stride) {
    Demand(Rows(kTile) > 0);
    for (int row = 0; row < Rows(kTile); ++row) {
      std::memcpy(static_cast<char*>(destination) + row * stride, state_.tiles[kTile][row],
                  static_cast<size_t>(RowBytes(kTile)));
    }
  }

  template <int kC, int kA, int kB>
  static void AddDotsInt8() {
    ForSums<kC, kA, kB>([](int m, int n) {
      auto sum = Get<int32_t>(kC, m, n);
      for (int j = 0; j < Rows(kB); ++j) {
        for (int i = 0; i < 4; ++i) {
          sum += Get<int8_t>(kA, m, 4 * j + i) * Get<int8_t>(kB, j, 4 * n + i);
        }
      }
      std::memcpy(state_.tiles[kC][m] + 4 * n, &sum, 4);
    });
  }
  template <int kC, int kA, int kB>
  static void AddDotsBf16() {
    ForSums<kC, kA, kB>([](int m, int n) {
      float parts[2] = {};
      for (int j = 0; j < Rows(kB); ++j) {
        for (int i = 0; i < 2; ++i) {
          parts[i] = __builtin_fmaf(GetBf16(kA, m, 2 * j + i), GetBf16(kB, j, 2 * n + i), parts[i]);
        }
      }
      const float sum = Get<float>(kC, m, n) + (parts[0] + parts[1]);
      std::memcpy(state_.tiles[kC][m] + 4 * n, &sum, 4);
    });
  }

 private:
  static inline thread_local EmulatedTileState state_;

  static int Rows(int tile) { return state_.config.rows[tile]; }
  static int RowBytes(int tile) { return state_.config.row_bytes[tile]; }
  template <typename T>
  static T Get(int tile, int row, int index) {
    T value;
    std::memcpy(&value, state_.tiles[tile][row] + static_cast<size_t>(index) * sizeof(T),
                sizeof(T));
    return value;
  }
  static float GetBf16(int tile, int row, int index) {
    return __builtin_bit_cast(float, static_cast<uint32_t>(Get<uint16_t>(tile, row, index)) << 16);
  }
  template <int kC, int kA, int kB, typename Body>
  static void ForSums(Body body) {
    Demand(Rows(kC) == Rows(kA) && RowBytes(kA) == 4 * Rows(kB) && RowBytes(kC) == RowBytes(kB));
    for (int m = 0; m < Rows(kC); ++m) {
      for (int n = 0; n < RowBytes(kC) / 4; ++n) body(m, n);
    }
  }
  // Ends the program, as the CPU does.
  static void Demand(bool condition) {
    if (!condition) __builtin_trap();
  }
};

}  // namespace
}  // namespace tokamak::cpu
