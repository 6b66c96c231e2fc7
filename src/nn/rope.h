// Rotary position embedding (RoPE, arXiv:2104.09864) and its scalings.
//
// Frequencies and angles are rounded to float32 where the reference implementation (transformers,
// modeling_rope_utils) rounds. Otherwise results at far positions would drift from the reference,
// because angles reach thousands of radians.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "nn/builder.h"
#include "nn/pass.h"
#include "ops/ops.h"
#include "weights/config_reader.h"

namespace tokamak::nn {

enum class RopeScaling {
  kNone,
  kLinear,      // frequencies divided by `factor`
  kDynamicNtk,  // no change up to max_positions; beyond, the base grows with each position
  kLlama3,      // divides long wavelengths by `factor`, keeps short ones, with a ramp between
  kYarn,        // like kLlama3, with a ramp over dimensions; arXiv:2309.00071
  kLongRope,    // divides each frequency by a factor from a set for short or for long contexts;
                // arXiv:2402.13753
};

// How positions become angles, with defaults resolved.
struct RopeSpec {
  double theta = 0;        // base of the geometric series of wavelengths
  int32_t rotary_dim = 0;  // the first rotary_dim dimensions of a head rotate; even
  RopeStyle style = RopeStyle::kHalfSplit;

  RopeScaling scaling = RopeScaling::kNone;
  double factor = 1;                   // kLinear, kLlama3, kYarn
  int32_t max_positions = 0;           // the longest context that may be requested
  int32_t original_max_positions = 0;  // kLlama3, kYarn, kLongRope: before the context extension
  double low_freq_factor = 0;          // kLlama3
  double high_freq_factor = 0;
  double beta_fast = 32;  // kYarn: rotations over the original context at the ends of the ramp
  double beta_slow = 1;
  bool truncate = true;              // kYarn: rounds the ramp's ends outward to whole dimensions
  std::vector<float> short_factors;  // kLongRope: [rotary_dim / 2]
  std::vector<float> long_factors;
  double attention_factor = 1;  // kYarn, kLongRope: factor of cosines and sines
  double score_factor = 1;      // kYarn in DeepSeek: factor of the scores

  // mRoPE (arXiv:2409.12191): pairs of each section of a head. Section i rotates by the position in
  // dimension i % 3: time, height, width. Empty: positions have one dimension.
  std::vector<int32_t> sections;
  // Qwen3-VL: instead of side by side, the pairs of the three sections alternate, until those for
  // height or width are used up; all others are for time.
  bool sections_interleaved = false;

  // The pairs of even frequencies are the first half of the table, the others the second.
  bool even_first = false;

  // Each frequency is divided by these (how GGUF files store kLlama3). [rotary_dim / 2], or empty.
  std::vector<float> freq_factors;
};

// Defaults of absent fields, which differ between families.
struct RopeDefaults {
  double theta = 10000;
  // Set for families that can rotate a part of each head. For others the field must be 1 or absent;
  // the reference ignores or rejects it.
  std::optional<double> partial_rotary_factor = {};
  // The same as in RopeSpec; set for families with mRoPE.
  std::vector<int32_t> sections = {};
  bool sections_interleaved = false;
};

// Reads a configuration's RoPE fields: rope_theta, rope_scaling and partial_rotary_factor, or in
// newer checkpoints rope_parameters with all of them. `max_positions` is max_position_embeddings.
// Records errors in the reader.
RopeSpec ParseRope(ConfigReader& reader, int32_t head_dim, int32_t max_positions,
                   const RopeDefaults& defaults = {});
// The same from one RoPE object, for models that have an object for each kind of layer; `rope` is
// null if there is none. `top` is the whole configuration.
RopeSpec ParseRopeObject(ConfigReader& top, ConfigReader* rope, int32_t head_dim,
                         int32_t max_positions, const RopeDefaults& defaults = {});

// Reads GGUF's rope_freqs.weight [rotary_dim / 2]; empty if the checkpoint lacks it.
std::vector<float> ReadRopeFreqFactors(const Builder& b, const RopeSpec& spec);

// Radians per position of each pair, [rotary_dim / 2], for contexts of up to `max_context`
// positions, which kLongRope depends on. kDynamicNtk ends at max_positions: beyond, the reference
// changes the base with every position, and cached keys would become stale.
std::vector<float> RopeFrequencies(const RopeSpec& spec, int32_t max_context);

// CacheSpec::original_context of a model with this RoPE and contexts of up to `max_context`.
int32_t OriginalContext(const RopeSpec& spec, int32_t max_context);

// A model's table, on its device. Immutable.
class Rope {
 public:
  // With an original_context, the table begins with rows for positions [0, original_context), which
  // shorter sequences use; rows for [0, max_context) follow. kResourceExhausted if it is too large.
  static Result<Rope> Make(const RopeSpec& spec, int32_t max_context, Ops& ops,
                           int32_t original_context = 0);

  const RopeTable& table() const { return table_; }
  int64_t bytes() const { return static_cast<int64_t>(storage_.size()); }

 private:
  Rope(Buffer storage, const RopeTable& table) : storage_(std::move(storage)), table_(table) {}

  Buffer storage_;
  RopeTable table_;
};

// Pairs of a head that rotate by a token's position in this dimension: by the pairs [first, first +
// pairs) of a table.
struct RopeSection {
  int32_t dimension = 0;
  int32_t first = 0;
  int32_t pairs = 0;
};
// The sections of mRoPE; if they are interleaved, most have a single pair.
std::vector<RopeSection> RopeSections(const RopeSpec& spec);

// Returns a table with a row per token of the pass, for heads whose pairs are these sections, side
// by side. It is in the pass's arena; without rope_positions it is allocated, but not written.
RopeTable TokenRope(Pass& pass, const RopeTable& table, std::span<const RopeSection> sections);

}  // namespace tokamak::nn
