// Numbers within the texts of patterns and grammars.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace tokamak::grammar {

// The largest count of repetitions that patterns and grammars may ask for.
inline constexpr uint32_t kMaxCount = 100000;

// Reads the decimal digits at text[at] and moves `at` past them. Absent if there are none. Returns
// kMaxCount + 1 for all larger numbers.
std::optional<uint32_t> ReadCount(std::string_view text, size_t& at);

// Reads as many hexadecimal digits (at most 8) at text[at] and moves `at` past them. Absent, and
// `at` stays, if there are fewer.
std::optional<uint32_t> ReadHex(std::string_view text, size_t& at, size_t digits);

}  // namespace tokamak::grammar
