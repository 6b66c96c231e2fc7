// A backend that computes nothing: it adds up what a real one would read, write and calculate. A
// model run on it, with an Arena::Counting, tells what memory and time a step will need.
//
// Tensors may be null and weights may be packed by any backend. Bytes are those that must move at
// least once: each operand read and each result written, nothing for what stays in caches.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>

#include "ops/ops.h"

namespace tokamak {

struct OpCount {
  int64_t calls = 0;
  int64_t weight_bytes = 0;  // of packed weights read; for Embed, of the rows looked up
  int64_t cache_bytes = 0;   // of the KV cache, read and written
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
  kScatterElements,
  kCopyRanges,
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
};
inline constexpr int kNumOpKinds = static_cast<int>(OpKind::kLatentAttention) + 1;
std::string_view Name(OpKind kind);

struct OpCounts {
  std::array<OpCount, kNumOpKinds> of_kind;

  const OpCount& operator[](OpKind kind) const { return of_kind[static_cast<size_t>(kind)]; }
  OpCount& operator[](OpKind kind) { return of_kind[static_cast<size_t>(kind)]; }
  OpCount Total() const;
};

// Allocate gives kDevice buffers without memory (null data, their size kept); kHostPinned ones are
// real, because the host writes to them. PackWeight reads no rows. Samplers draw nothing: results
// are left as they are.
class CountOps : public Ops {
 public:
  // Since the last Reset.
  virtual const OpCounts& counts() const = 0;
  virtual void Reset() = 0;
  // Of all weights packed so far.
  virtual int64_t packed_bytes() const = 0;
  virtual int64_t packed_elements() const = 0;
  // Of all buffers asked for so far.
  virtual int64_t allocated_bytes(MemoryKind kind) const = 0;
};

// Bytes that a backend keeps for a weight.
using WeightSizer = int64_t (*)(const WeightSpec& spec);
int64_t StoredBytes(const WeightSpec& spec);  // as many as the file

// Whose work is counted: what it is called, what it can run (Ops::has_extras, ...), and in which
// type a weight's products take their activations (empty: f32).
struct CountedBackend {
  std::string_view name = "count";
  bool has_extras = true;
  bool has_moe = true;
  bool has_mla = true;
  std::function<DType(const WeightSpec& spec)> activation = {};
};

std::unique_ptr<CountOps> MakeCountOps(WeightSizer sizer = &StoredBytes,
                                       const CountedBackend& backend = {});

}  // namespace tokamak
