// Loops whose index is a constant in the body.
#pragma once

namespace tokamak::cpu {

template <int kValue>
struct Constant {
  static constexpr int value = kValue;  // NOLINT(readability-identifier-naming): as in std
};

// Calls body(Constant<0>()) ... body(Constant<kCount - 1>()).
template <int kCount, typename Body>
[[gnu::always_inline]] inline void Unroll(Body body) {
  if constexpr (kCount > 0) {
    Unroll<kCount - 1>(body);
    body(Constant<kCount - 1>());
  }
}

}  // namespace tokamak::cpu
