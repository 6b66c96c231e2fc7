// Lets tests do less work under sanitizers, which are many times slower and find an error in a few
// rounds as well as in all. The release build runs everything.
#pragma once

#include <algorithm>
#include <cstdint>

namespace tokamak::testing {

#ifdef TOKAMAK_SANITIZED
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

// A tenth of `all` (rounds, bytes, draws) under a sanitizer, else `all`.
template <typename T>
constexpr T Fewer(T all) {
  return kSanitized ? std::max<T>(1, all / 10) : all;
}

}  // namespace tokamak::testing
