// Rotary position embedding (arXiv:2104.09864) and the scalings of it that checkpoints ask for.
//
// Frequencies and angles are rounded to float32 where the reference implementation
// (transformers, modeling_rope_utils) rounds, because an angle of thousands of radians has an
// absolute error that the model sees: positions far out would otherwise drift from it.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "nn/builder.h"
#include "ops/ops.h"
#include "weights/config_reader.h"

namespace tokamak::nn {

enum class RopeScaling {
  kNone,
  kLinear,      // frequencies divided by `factor`
  kDynamicNtk,  // nothing up to max_positions; beyond, a base that grows with each position
  kLlama3,      // long wavelengths divided by `factor`, short ones kept, a ramp between
  kYarn,        // the same idea, ramped by dimension; arXiv:2309.00071
  kLongRope,    // one divisor per frequency, a set for short and one for long contexts;
                // arXiv:2402.13753
};

// What turns positions into angles, with defaults resolved.
struct RopeSpec {
  double theta = 0;        // base of the geometric series of wavelengths
  int32_t rotary_dim = 0;  // the first rotary_dim dimensions of a head rotate; even
  RopeStyle style = RopeStyle::kHalfSplit;

  RopeScaling scaling = RopeScaling::kNone;
  double factor = 1;                   // kLinear, kLlama3, kYarn
  int32_t max_positions = 0;           // the context that can be asked for
  int32_t original_max_positions = 0;  // kLlama3, kYarn, kLongRope: before the context was extended
  double low_freq_factor = 0;          // kLlama3
  double high_freq_factor = 0;
  double beta_fast = 32;  // kYarn: rotations over the original context at the ramp's two ends
  double beta_slow = 1;
  bool truncate = true;              // kYarn: round the ramp's ends outward to whole dimensions
  std::vector<float> short_factors;  // kLongRope: [rotary_dim / 2]
  std::vector<float> long_factors;
  double attention_factor = 1;  // kYarn, kLongRope: multiplies cosines and sines
  double score_factor = 1;      // kYarn: DeepSeek's, multiplies the scores

  // Divides each frequency (how GGUF files store kLlama3). [rotary_dim / 2], or empty.
  std::vector<float> divisors;
};

// What absent fields mean, which differs between families.
struct RopeDefaults {
  double theta = 10000;
  // Where the family can rotate a part of each head. Elsewhere the field may say 1 only: the
  // reference passes over it, or fails.
  std::optional<double> partial_rotary_factor = {};
};

// Reads the RoPE fields of a configuration: rope_theta, rope_scaling and partial_rotary_factor, or
// all of them inside rope_parameters, as newer checkpoints have it. `max_positions` is
// max_position_embeddings. What is wrong is noted in the reader.
RopeSpec ParseRope(ConfigReader& reader, int32_t head_dim, int32_t max_positions,
                   const RopeDefaults& defaults = {});
// The same from one object, or none, where a model has several kinds of layers. `top` is the whole
// configuration.
RopeSpec ParseRopeObject(ConfigReader& top, ConfigReader* rope, int32_t head_dim,
                         int32_t max_positions, const RopeDefaults& defaults = {});

// GGUF's rope_freqs.weight: [rotary_dim / 2] where the checkpoint has it, or empty.
std::vector<float> ReadRopeDivisors(const Builder& b, const RopeSpec& spec);

// Radians per position of each pair, [rotary_dim / 2], for contexts of up to `max_context`
// positions. kLongRope depends on it. kDynamicNtk ends at max_positions: beyond, the reference
// chooses a base for each length, and what is cached would become stale with every position.
std::vector<float> RopeFrequencies(const RopeSpec& spec, int32_t max_context);

// CacheSpec::original_context of a model with this RoPE that serves contexts of up to
// `max_context`.
int32_t OriginalContext(const RopeSpec& spec, int32_t max_context);

// The table of a model, on its device. Immutable.
class Rope {
 public:
  // Positions [0, max_context). With an `original_context`, the angles of sequences of at most so
  // many positions come before them. kResourceExhausted when the table would not fit.
  static Result<Rope> Make(const RopeSpec& spec, int32_t max_context, Ops& ops,
                           int32_t original_context = 0);

  const RopeTable& table() const { return table_; }
  int64_t bytes() const { return static_cast<int64_t>(storage_.size()); }

 private:
  Rope(Buffer storage, const RopeTable& table) : storage_(std::move(storage)), table_(table) {}

  Buffer storage_;
  RopeTable table_;
};

}  // namespace tokamak::nn
