// A backend that computes nothing: it counts what a real one would read, write and calculate.
// Running a model on it, with an Arena::Counting, gives the memory and time that a step needs.
//
// Tensors may be null; any backend may have packed the weights. Each operand counts as read once
// and each result as written once.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "ops/ops.h"

namespace tokamak {

struct OpCount {
  int64_t calls = 0;
  int64_t weight_bytes = 0;  // packed weights read; for Embed, the rows looked up
  int64_t cache_bytes = 0;   // of the KV cache and of states, read and written
  int64_t other_bytes = 0;   // activations and indices, read and written
  int64_t flops = 0;         // multiplications and additions of matrix products

  int64_t bytes() const { return weight_bytes + cache_bytes + other_bytes; }
  OpCount& operator+=(const OpCount& other);
};

enum class OpKind {
  kEmbed,
  kAddRmsNorm,
  kLinear,
  kGatedActivation,
  kRopeAndStore,
  kAttention,
  kGatherRows,
  kCopyRows,
  kScatterElements,
  kCopyRanges,
  kAllReduce,
  kAllGather,
  kAddResidual,
  kSoftcap,
  kAddLayerNorm,
  kClamp,
  kActivate,
  kConvert,
  kRouteTokens,
  kGroupedLinear,
  kCombineExperts,
  kHeadLinear,
  kLatentAttention,
  kCausalConv,
  kGatedDelta,
  kGateOutput,
};
inline constexpr int kNumOpKinds = static_cast<int>(OpKind::kGateOutput) + 1;
std::string_view Name(OpKind kind);

struct OpCounts {
  std::array<OpCount, kNumOpKinds> of_kind;

  const OpCount& operator[](OpKind kind) const { return of_kind[static_cast<size_t>(kind)]; }
  OpCount& operator[](OpKind kind) { return of_kind[static_cast<size_t>(kind)]; }
  OpCount Total() const;
};

// kDevice buffers have a size but no memory (null data); kHostPinned ones are real, because the
// host writes to them. PackWeight reads no rows. Samplers leave results unchanged.
class CountOps : public Ops {
 public:
  // Counts since the last Reset.
  virtual const OpCounts& counts() const = 0;
  virtual void Reset() = 0;
  // The total of all weights packed so far.
  virtual int64_t packed_bytes() const = 0;
  // Total size of all buffers allocated so far.
  virtual int64_t allocated_bytes(MemoryKind kind) const = 0;
};

// Returns the bytes that a backend keeps for a weight.
using WeightSizer = int64_t (*)(const WeightSpec& spec);
int64_t StoredBytes(const WeightSpec& spec);  // the same size as in the file

// The backend whose work is counted: its name, its optional features, its place among ranks, the
// type that it prefers between operations, and the activation type of a weight's products (empty:
// f32).
struct CountedBackend {
  std::string name = "count";
  Capabilities capabilities = Capabilities::All() - Capability::kLatentScratch;
  RankInfo rank = {};
  DType inner_type = DType::kF32;
  std::function<DType(const WeightSpec& spec)> activation = {};
};

std::unique_ptr<CountOps> MakeCountOps(WeightSizer sizer = &StoredBytes,
                                       const CountedBackend& backend = {});

}  // namespace tokamak
