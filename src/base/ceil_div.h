// Division that rounds up.
#pragma once

namespace tokamak {

// Requires a >= 0, b > 0, and a + b within their type.
template <typename A, typename B>
constexpr auto CeilDiv(A a, B b) {
  return (a + b - 1) / b;
}

}  // namespace tokamak
