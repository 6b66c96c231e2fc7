// Division of counts, rounded up.
#pragma once

namespace tokamak {

// For a >= 0 and b > 0 whose sum fits their type.
template <typename A, typename B>
constexpr auto CeilDiv(A a, B b) {
  return (a + b - 1) / b;
}

}  // namespace tokamak
