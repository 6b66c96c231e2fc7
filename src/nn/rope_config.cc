// Reads RopeSpec from a configuration. Defaults are those of the reference implementation.
#include <fmt/core.h>

#include <cmath>
#include <numeric>
#include <optional>
#include <string>

#include "base/error.h"
#include "nn/rope.h"

namespace tokamak::nn {
namespace {

// YaRN's attention factor: 0.1 · mscale · ln(factor) + 1.
double YarnMscale(double factor, double mscale) {
  return factor <= 1 ? 1.0 : 0.1 * mscale * std::log(factor) + 1.0;
}

// In older checkpoints original_max_position_embeddings is outside the RoPE object.
int32_t OriginalMaxPositions(ConfigReader& top, ConfigReader& rope, int32_t max_positions) {
  constexpr const char* kName = "original_max_position_embeddings";
  const int32_t inside = rope.IntOr(kName, max_positions);
  return top.IntOr(kName, inside);
}

void ParseLlama3(ConfigReader& rope, RopeSpec& spec) {
  spec.scaling = RopeScaling::kLlama3;
  spec.factor = rope.Number("factor");
  spec.low_freq_factor = rope.Number("low_freq_factor");
  spec.high_freq_factor = rope.Number("high_freq_factor");
  if (spec.high_freq_factor <= spec.low_freq_factor) {
    rope.Fail("high_freq_factor", "must be greater than low_freq_factor");
  }
}

void ParseYarn(ConfigReader& rope, RopeSpec& spec) {
  spec.scaling = RopeScaling::kYarn;
  // The reference requires the field, and computes the factor if it is null.
  if (rope.IsNull("factor")) {
    rope.Ignore({"factor"});
    spec.factor = static_cast<double>(spec.max_positions) / spec.original_max_positions;
  } else {
    spec.factor = rope.Number("factor");
  }
  spec.beta_fast = rope.NumberOr("beta_fast", 32);
  spec.beta_slow = rope.NumberOr("beta_slow", 1);
  spec.truncate = rope.BoolOr("truncate", true);
  const double mscale = rope.NumberOr("mscale", 0, {0, 1e3});
  const double mscale_all_dim = rope.NumberOr("mscale_all_dim", 0, {0, 1e3});
  const double inferred =
      mscale != 0 && mscale_all_dim != 0
          ? YarnMscale(spec.factor, mscale) / YarnMscale(spec.factor, mscale_all_dim)
          : YarnMscale(spec.factor, 1);
  spec.attention_factor = rope.NumberOr("attention_factor", inferred);
  if (mscale_all_dim != 0) {
    const double temperature = YarnMscale(spec.factor, mscale_all_dim);
    spec.score_factor = temperature * temperature;
  }
}

std::vector<float> ParseFactors(ConfigReader& rope, const char* name, int32_t rotary_dim) {
  const std::vector<double> factors = rope.Numbers(name);
  if (static_cast<int32_t>(factors.size()) != rotary_dim / 2) {
    rope.Fail(name, fmt::format("has {} elements, expected {} (rotary dimensions {} / 2)",
                                factors.size(), rotary_dim / 2, rotary_dim));
  }
  return std::vector<float>(factors.begin(), factors.end());
}

void ParseLongRope(ConfigReader& rope, RopeSpec& spec) {
  spec.scaling = RopeScaling::kLongRope;
  spec.short_factors = ParseFactors(rope, "short_factor", spec.rotary_dim);
  spec.long_factors = ParseFactors(rope, "long_factor", spec.rotary_dim);
  const double original = spec.original_max_positions;
  const double factor = rope.NumberOr("factor", spec.max_positions / original);
  // A context that was not extended keeps an attention factor of 1.
  const double inferred = factor <= 1 ? 1.0 : std::sqrt(1 + std::log(factor) / std::log(original));
  spec.attention_factor = rope.NumberOr("attention_factor", inferred);
}

void ParseScaling(ConfigReader& top, ConfigReader& rope, RopeSpec& spec) {
  const std::string old_name = rope.StringOr("type", "default");
  std::string type = rope.StringOr("rope_type", old_name);
  if (type == "su") type = "longrope";  // its first name
  if (!spec.sections.empty()) {
    if (type == "mrope")
      type = "default";  // a name from before the sections were a field of their own
    if (type == "longrope") rope.Fail("rope_type", "is not supported with mrope_section");
  }
  if (type == "llama3" || type == "yarn" || type == "longrope") {
    spec.original_max_positions = OriginalMaxPositions(top, rope, spec.max_positions);
  }
  if (type == "linear") {
    spec.scaling = RopeScaling::kLinear;
    spec.factor = rope.Number("factor");
  } else if (type == "dynamic") {
    spec.scaling = RopeScaling::kDynamicNtk;
    rope.Number("factor", {1, 1e6});  // has an effect only beyond max_positions
  } else if (type == "llama3") {
    ParseLlama3(rope, spec);
  } else if (type == "yarn") {
    ParseYarn(rope, spec);
  } else if (type == "longrope") {
    ParseLongRope(rope, spec);
  } else if (type != "default") {
    rope.Fail("rope_type", fmt::format("\"{}\" is not supported; known: default, linear, dynamic, "
                                       "llama3, yarn, longrope",
                                       type));
  }
}

// The fraction of each head that rotates.
double ParsePart(ConfigReader& reader, const RopeDefaults& defaults) {
  constexpr const char* kName = "partial_rotary_factor";
  if (defaults.partial_rotary_factor) {
    return reader.NumberOr(kName, *defaults.partial_rotary_factor, {1e-3, 1.0});
  }
  reader.ExpectOrAbsent(kName, 1.0);
  return 1;
}

void ParseSections(ConfigReader& rope, RopeSpec& spec) {
  constexpr const char* kName = "mrope_section";
  if (spec.sections_interleaved) rope.ExpectOrAbsent("mrope_interleaved", true);
  if (rope.Has(kName)) spec.sections = rope.Ints(kName, Positive(1 << 14));
  const int64_t pairs = std::accumulate(spec.sections.begin(), spec.sections.end(), int64_t{0});
  if (rope.ok() && pairs != spec.rotary_dim / 2) {
    rope.Fail(kName, fmt::format("has {} pairs, expected {} (rotary dimensions {} / 2)", pairs,
                                 spec.rotary_dim / 2, spec.rotary_dim));
  } else if (spec.sections_interleaved && spec.sections.size() != 3) {
    rope.Fail(kName, fmt::format("has {} sections, expected 3", spec.sections.size()));
  }
}

}  // namespace

RopeSpec ParseRope(ConfigReader& reader, int32_t head_dim, int32_t max_positions,
                   const RopeDefaults& defaults) {
  RopeDefaults beside = {.sections = defaults.sections,
                         .sections_interleaved = defaults.sections_interleaved};
  const double part = ParsePart(reader, defaults);
  if (defaults.partial_rotary_factor) beside.partial_rotary_factor = part;
  beside.theta = reader.NumberOr("rope_theta", defaults.theta, {1.0001, 1e15});

  // Fields inside the object take precedence over those beside it.
  const bool inside = reader.Has("rope_parameters");
  const char* const name = inside ? "rope_parameters" : "rope_scaling";
  std::optional<ConfigReader> rope;
  if (reader.Has(name)) rope = reader.Object(name);
  return ParseRopeObject(reader, rope ? &*rope : nullptr, head_dim, max_positions, beside);
}

RopeSpec ParseRopeObject(ConfigReader& top, ConfigReader* rope, int32_t head_dim,
                         int32_t max_positions, const RopeDefaults& defaults) {
  RopeSpec spec;
  spec.max_positions = max_positions;
  spec.theta = defaults.theta;
  spec.sections = defaults.sections;
  spec.sections_interleaved = defaults.sections_interleaved;
  double partial = defaults.partial_rotary_factor.value_or(1);
  if (rope != nullptr) {
    spec.theta = rope->NumberOr("rope_theta", spec.theta, {1.0001, 1e15});
    partial = ParsePart(*rope, defaults);
  }
  ConfigReader& at = rope != nullptr ? *rope : top;
  constexpr double kRounding = 1e-9;  // so that 6 / 14 · 14 gives 6
  spec.rotary_dim = static_cast<int32_t>(head_dim * partial + kRounding);
  if (spec.rotary_dim < 2 || spec.rotary_dim % 2 != 0) {
    at.Fail("partial_rotary_factor", fmt::format("{} of head_dim {} gives {} rotary dimensions, "
                                                 "but their number must be even and positive",
                                                 partial, head_dim, spec.rotary_dim));
    spec.rotary_dim = 2;
  }
  if (!spec.sections.empty()) ParseSections(at, spec);
  if (rope != nullptr) ParseScaling(top, *rope, spec);
  return spec;
}

std::vector<float> ReadRopeFreqFactors(const Builder& b, const RopeSpec& spec) {
  const Builder at = b / "rope_freqs.weight";
  if (!at.Has()) return {};
  SourcePtr source = at.Find(Shape{spec.rotary_dim / 2}, "rotary dimensions / 2");
  if (!source) return {};
  std::vector<float> freq_factors = at.ReadValues({source});
  for (float factor : freq_factors) {
    if (std::isfinite(factor) && factor > 0) continue;
    at.Fail(DataLoss("{}: {} is not a valid RoPE frequency factor; the file is damaged",
                     source->name(), factor));
    return {};
  }
  return freq_factors;
}

}  // namespace tokamak::nn
