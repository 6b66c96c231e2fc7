#include "ops/capabilities.h"

#include <iterator>
#include <string_view>

namespace tokamak {
namespace {

// In the order of the enumeration.
constexpr std::string_view kNames[] = {
    "multi-head latent attention",
    "MoE layers",
    "weighted sums of rows",
    "non-causal attention",
    "attention sinks",
    "ALiBi",
    "softcaps of attention scores",
    "softcaps of logits",
    "clamped attention inputs",
    "layer normalization",
    "layers without pre-norm",
    "feed-forward layers without a gate",
    "exact GELU",
    "quick GELU",
    "clamped SwiGLU",
    "scaled embeddings",
    "conversion of activations",
    "gated delta nets",
    "gated attention outputs",
    "decompression of latents in memory",
};
static_assert(std::size(kNames) == kNumCapabilities);

}  // namespace

std::string Describe(Capabilities set) {
  std::string text;
  for (int i = 0; i < kNumCapabilities; ++i) {
    const Capabilities member = static_cast<Capability>(i);
    if (!set.Has(member)) continue;
    set = set - member;
    if (!text.empty()) text += set.empty() ? " and " : ", ";
    text += kNames[i];
  }
  return text;
}

}  // namespace tokamak
