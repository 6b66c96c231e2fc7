// The code books of quant/blocks.h as tables for kernels.
#pragma once

#include <array>

#include "quant/blocks.h"

namespace tokamak::cpu {

// A plain array, because no library function may be compiled for an ISA.
template <typename T>
struct CodeTable {
  T values[16];
};

// codes[i] + offset, at compile time.
template <typename T>
constexpr CodeTable<T> CodeBook(const std::array<int8_t, 16>& codes, int offset) {
  CodeTable<T> table{};
  for (size_t i = 0; i < 16; ++i) table.values[i] = static_cast<T>(codes[i] + offset);
  return table;
}

}  // namespace tokamak::cpu
