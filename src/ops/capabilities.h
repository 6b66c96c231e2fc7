// The optional features of backends: operations, and values of their fields, that only some models
// need. Ops::capabilities says which a backend has, nn's layers say which they need
// (Builder::Needs), and LoadModel refuses a model that needs others.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>

#include "ops/activation.h"

namespace tokamak {

enum class Capability : uint8_t {
  kMla,               // ops/mla.h; value_dim, values_in_keys; RopeAndStore::q_head_dim
  kMoe,               // the operations of ops/moe.h
  kCombine,           // of these, CombineExperts
  kNonCausal,         // AttentionShape::causal = false, AttentionShape::bidirectional
  kSinks,             // Attention::sinks
  kAlibi,             // Attention::slopes
  kAttentionSoftcap,  // Attention::softcap
  kLogitSoftcap,      // Softcap
  kClamp,             // Clamp
  kLayerNorm,         // AddLayerNorm
  kAddResidual,       // AddResidual
  kActivate,          // Activate
  kGelu,              // Activation::kGelu
  kQuickGelu,         // Activation::kQuickGelu
  kClampedSwiglu,     // Activation::kClampedSwiglu
  kEmbeddingScale,    // Embed::scale other than 1
  kConvert,           // Convert
  kGatedDelta,        // CausalConv, GatedDelta
  kGateOutput,        // GateOutput
  kLatentScratch,     // LatentAttention that is fast with scratch; no model needs it
};
inline constexpr int kNumCapabilities = static_cast<int>(Capability::kLatentScratch) + 1;

class Capabilities {
 public:
  constexpr Capabilities() = default;
  // Implicit, so that one capability can stand for the set of it alone.
  constexpr Capabilities(Capability member)  // NOLINT(google-explicit-constructor)
      : bits_(uint32_t{1} << static_cast<int>(member)) {}
  constexpr Capabilities(std::initializer_list<Capability> members) {
    for (const Capability member : members) *this |= member;
  }
  static constexpr Capabilities All() { return FromBits((uint32_t{1} << kNumCapabilities) - 1); }

  constexpr bool empty() const { return bits_ == 0; }
  // Whether all of `others` are in this set.
  constexpr bool Has(Capabilities others) const { return (others - *this).empty(); }
  constexpr Capabilities& operator|=(Capabilities others) {
    bits_ |= others.bits_;
    return *this;
  }
  constexpr Capabilities operator-(Capabilities others) const {
    return FromBits(bits_ & ~others.bits_);
  }
  constexpr bool operator==(const Capabilities&) const = default;

 private:
  static constexpr Capabilities FromBits(uint32_t bits) {
    Capabilities set;
    set.bits_ = bits;
    return set;
  }

  uint32_t bits_ = 0;
};

// Returns the features that an MLP with this activation needs.
constexpr Capabilities NeedsOf(Activation activation) {
  if (activation == Activation::kGelu) return Capability::kGelu;
  if (activation == Activation::kQuickGelu) return Capability::kQuickGelu;
  if (activation == Activation::kClampedSwiglu) return Capability::kClampedSwiglu;
  return {};
}

// For messages: "MoE layers, attention sinks and clamped SwiGLU".
std::string Describe(Capabilities set);

}  // namespace tokamak
