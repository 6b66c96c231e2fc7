// For tests: what a sanitizer build leaves out. It takes many times as long, and sees in a few
// rounds of a loop what it sees in all of them; the release build does all.
#pragma once

#include <algorithm>
#include <cstdint>

namespace tokamak::testing {

#ifdef TOKAMAK_SANITIZED
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

// Rounds, bytes, or draws: a tenth of `all` under a sanitizer.
template <typename T>
constexpr T Fewer(T all) {
  return kSanitized ? std::max<T>(1, all / 10) : all;
}

}  // namespace tokamak::testing
