// Quantizes activations to int8 (quant/activation_row.h), bit for bit like QuantizeActivations.
#pragma once

#include "ops/cpu/int8_kernels.h"
#include "ops/cpu/kernels/int8_linear.h"
#include "quant/activation_row.h"

namespace tokamak::cpu {

template <class D>
struct Int8Quantize {
  using F = typename D::F;
  static constexpr int kVectors = kActivationBlock / D::kLanes;

  static void Run(const float* x, int64_t first, int64_t n, int64_t cols, std::byte* row) {
    auto* scales = reinterpret_cast<float*>(row + ActivationScales(cols));
    auto* low = reinterpret_cast<int16_t*>(row + ActivationLowSums(cols));
    auto* high = reinterpret_cast<int16_t*>(row + ActivationHighSums(cols));
    for (int64_t block = first / kActivationBlock; n > 0; ++block, n -= kActivationBlock) {
      std::byte* codes = row + block * kActivationBlock;
      scales[block] = Codes(x, codes);
      low[block] = D::SumOfBytes(codes);
      high[block] = D::SumOfBytes(codes + kActivationBlock / 2);
      x += kActivationBlock;
    }
  }

 private:
  // Writes the codes of a block and returns its scale.
  static float Codes(const float* x, std::byte* codes) {
    F value[kVectors];
    F highest = D::Zero(), poison = D::Zero();
    for (int v = 0; v < kVectors; ++v) {
      value[v] = D::Load(x + v * D::kLanes);
      highest = D::Max(D::Max(value[v], D::Negate(value[v])), highest);  // Max skips a NaN here
      poison = D::Fma(value[v], D::Zero(), poison);  // NaN once a value is NaN or Inf
    }
    const float top = D::MaxLanes(highest);
    const bool finite = D::SumLanes(poison) == 0;
    const bool nothing = !finite || top < kSmallestActivation;
    const F inverse = D::Broadcast(nothing ? 0.0f : 127.0f / top);
    for (int v = 0; v < kVectors; ++v) {
      const F scaled = finite ? D::Mul(value[v], inverse) : D::Zero();
      D::StoreBytes(codes + v * D::kLanes, D::Round(scaled));
    }
    if (!finite) return __builtin_nanf("");
    return nothing ? 0.0f : top / 127.0f;
  }
};

template <class D>
constexpr Int8Kernels MakeInt8Kernels() {
  return {.tokens_at_once = D::kMaxTokens,
          .linear = Int8Linear<D>::Run,
          .quantize = Int8Quantize<D>::Run};
}

}  // namespace tokamak::cpu
