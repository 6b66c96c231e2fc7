// Compile-time constants as arguments of lambdas: a loop's index, a weight type.
#pragma once

#include "tensor/dtype.h"

namespace tokamak::cpu {

template <auto kValue>
struct Constant {
  static constexpr auto value = kValue;  // NOLINT(readability-identifier-naming): as in std
};

// Calls body(Constant<0>()) ... body(Constant<kCount - 1>()).
template <int kCount, typename Body>
[[gnu::always_inline]] inline void Unroll(Body body) {
  if constexpr (kCount > 0) {
    Unroll<kCount - 1>(body);
    body(Constant<kCount - 1>());
  }
}

// Calls body(Constant<dtype>()) when it is a block format of weights.
template <typename Body>
[[gnu::always_inline]] inline void ForBlockType(DType dtype, Body body) {
  switch (dtype) {
    case DType::kQ4_0:
      return body(Constant<DType::kQ4_0>());
    case DType::kQ4_1:
      return body(Constant<DType::kQ4_1>());
    case DType::kQ5_0:
      return body(Constant<DType::kQ5_0>());
    case DType::kQ5_1:
      return body(Constant<DType::kQ5_1>());
    case DType::kQ8_0:
      return body(Constant<DType::kQ8_0>());
    case DType::kQ2_K:
      return body(Constant<DType::kQ2_K>());
    case DType::kQ3_K:
      return body(Constant<DType::kQ3_K>());
    case DType::kQ4_K:
      return body(Constant<DType::kQ4_K>());
    case DType::kQ5_K:
      return body(Constant<DType::kQ5_K>());
    case DType::kQ6_K:
      return body(Constant<DType::kQ6_K>());
    case DType::kIQ4_NL:
      return body(Constant<DType::kIQ4_NL>());
    case DType::kIQ4_XS:
      return body(Constant<DType::kIQ4_XS>());
    case DType::kMXFP4:
      return body(Constant<DType::kMXFP4>());
    default:
      return;
  }
}

}  // namespace tokamak::cpu
