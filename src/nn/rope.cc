#include "nn/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/check.h"
#include "base/error.h"

namespace tokamak::nn {
namespace {

// Wavelengths over 2π: theta^(2i / rotary_dim). The power is rounded correctly to float32.
// Vectorized float implementations differ from that only in an occasional last bit.
std::vector<float> Wavelengths(double theta, int32_t rotary_dim) {
  std::vector<float> result(static_cast<size_t>(rotary_dim / 2));
  const double base = static_cast<float>(theta);
  for (size_t i = 0; i < result.size(); ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(rotary_dim);
    result[i] = static_cast<float>(std::pow(base, static_cast<double>(exponent)));
  }
  return result;
}

std::vector<float> Inverse(std::vector<float> values) {
  for (float& value : values) value = 1.0f / value;
  return values;
}

void ScaleLlama3(const RopeSpec& spec, std::vector<float>& frequencies) {
  const double context = spec.original_max_positions;
  const auto longest_kept = static_cast<float>(context / spec.high_freq_factor);
  const auto shortest_divided = static_cast<float>(context / spec.low_freq_factor);
  const auto factor = static_cast<float>(spec.factor);
  const auto low = static_cast<float>(spec.low_freq_factor);
  const auto width = static_cast<float>(spec.high_freq_factor - spec.low_freq_factor);
  for (float& frequency : frequencies) {
    const float wavelength = static_cast<float>(2 * std::numbers::pi) / frequency;
    if (wavelength > shortest_divided) {
      frequency = frequency / factor;
    } else if (wavelength >= longest_kept) {
      const float keep = (static_cast<float>(context) / wavelength - low) / width;
      frequency = (1 - keep) * frequency / factor + keep * frequency;
    }
  }
}

// The (fractional) index of the frequency that makes `rotations` rotations over the original
// context.
double YarnDimension(const RopeSpec& spec, double rotations) {
  const double context = spec.original_max_positions;
  return spec.rotary_dim * std::log(context / (rotations * 2 * std::numbers::pi)) /
         (2 * std::log(spec.theta));
}

std::vector<float> YarnFrequencies(const RopeSpec& spec) {
  double begin = YarnDimension(spec, spec.beta_fast);
  double end = YarnDimension(spec, spec.beta_slow);
  if (spec.truncate) {
    begin = std::floor(begin);
    end = std::ceil(end);
  }
  begin = std::max(begin, 0.0);
  end = std::min(end, spec.rotary_dim - 1.0);
  if (begin == end) end += 0.001;

  std::vector<float> result = Wavelengths(spec.theta, spec.rotary_dim);
  for (size_t i = 0; i < result.size(); ++i) {
    const float ramp =
        (static_cast<float>(i) - static_cast<float>(begin)) / static_cast<float>(end - begin);
    const float keep = 1.0f - std::clamp(ramp, 0.0f, 1.0f);
    const float extrapolated = 1.0f / result[i];
    const float interpolated = 1.0f / (static_cast<float>(spec.factor) * result[i]);
    result[i] = interpolated * (1.0f - keep) + extrapolated * keep;
  }
  return result;
}

std::vector<float> LongRopeFrequencies(const RopeSpec& spec, int32_t max_context) {
  const std::vector<float>& factors =
      max_context > spec.original_max_positions ? spec.long_factors : spec.short_factors;
  std::vector<float> result = Wavelengths(spec.theta, spec.rotary_dim);
  CHECK(factors.size() == result.size());
  for (size_t i = 0; i < result.size(); ++i) result[i] = 1.0f / (factors[i] * result[i]);
  return result;
}

// A row of the table: the cosines of all angles, then the sines.
void FillCosSin(int32_t position, const std::vector<float>& frequencies, float scale, float* row) {
  const size_t half = frequencies.size();
  for (size_t i = 0; i < half; ++i) {
    const float angle = static_cast<float>(position) * frequencies[i];
    row[i] = std::cos(angle) * scale;
    row[half + i] = std::sin(angle) * scale;
  }
}

}  // namespace

std::vector<float> RopeFrequencies(const RopeSpec& spec, int32_t max_context) {
  CHECK(spec.rotary_dim > 0 && spec.rotary_dim % 2 == 0);
  CHECK(spec.scaling != RopeScaling::kDynamicNtk || max_context <= spec.max_positions);
  std::vector<float> frequencies;
  switch (spec.scaling) {
    case RopeScaling::kNone:
    case RopeScaling::kDynamicNtk:  // same as kNone up to max_positions
      frequencies = Inverse(Wavelengths(spec.theta, spec.rotary_dim));
      break;
    case RopeScaling::kLinear:
      frequencies = Inverse(Wavelengths(spec.theta, spec.rotary_dim));
      for (float& frequency : frequencies) frequency /= static_cast<float>(spec.factor);
      break;
    case RopeScaling::kLlama3:
      frequencies = Inverse(Wavelengths(spec.theta, spec.rotary_dim));
      ScaleLlama3(spec, frequencies);
      break;
    case RopeScaling::kYarn:
      frequencies = YarnFrequencies(spec);
      break;
    case RopeScaling::kLongRope:
      frequencies = LongRopeFrequencies(spec, max_context);
      break;
  }
  if (!spec.freq_factors.empty()) {
    CHECK(spec.freq_factors.size() == frequencies.size());
    for (size_t i = 0; i < frequencies.size(); ++i) frequencies[i] /= spec.freq_factors[i];
  }
  if (!spec.even_first) return frequencies;
  std::vector<float> ordered;
  for (const size_t first : {0, 1}) {
    for (size_t i = first; i < frequencies.size(); i += 2) ordered.push_back(frequencies[i]);
  }
  return ordered;
}

int32_t OriginalContext(const RopeSpec& spec, int32_t max_context) {
  const bool both =
      spec.scaling == RopeScaling::kLongRope && max_context > spec.original_max_positions;
  return both ? spec.original_max_positions : 0;
}

std::vector<RopeSection> RopeSections(const RopeSpec& spec) {
  std::vector<int32_t> dimensions;  // of each pair
  for (size_t i = 0; i < spec.sections.size(); ++i) {
    dimensions.insert(dimensions.end(), static_cast<size_t>(spec.sections[i]),
                      static_cast<int32_t>(i % 3));
  }
  if (spec.sections_interleaved) {
    for (size_t i = 0; i < dimensions.size(); ++i) {
      const bool left = i / 3 < static_cast<size_t>(spec.sections[i % 3]);
      dimensions[i] = left ? static_cast<int32_t>(i % 3) : 0;
    }
  }
  std::vector<RopeSection> sections;
  for (size_t i = 0; i < dimensions.size(); ++i) {
    if (sections.empty() || sections.back().dimension != dimensions[i]) {
      sections.push_back({dimensions[i], static_cast<int32_t>(i), 0});
    }
    ++sections.back().pairs;
  }
  return sections;
}

RopeTable TokenRope(Pass& pass, const RopeTable& table, std::span<const RopeSection> sections) {
  int64_t pairs = 0;
  for (const RopeSection& section : sections) pairs += section.pairs;
  const Tensor rows = pass.arena.Allocate(DType::kF32, {pass.num_tokens(), 2 * pairs});
  const RopeTable by_token = {rows, static_cast<int32_t>(2 * pairs), table.style};
  if (pass.rope_positions.empty()) return by_token;
  int64_t to = 0;
  for (const RopeSection& section : sections) {
    Tensor positions = pass.rope_positions.Rows(section.dimension, section.dimension + 1);
    positions.shape = Shape{pass.num_tokens()};
    for (const int64_t sines : {0, 1}) {
      const int64_t from = sines * (table.rotary_dim / 2) + section.first;
      const int64_t at = sines * pairs + to;
      pass.ops.Run(GatherRows{.source = table.cos_sin.Cols(from, from + section.pairs),
                              .rows = positions,
                              .out = rows.Cols(at, at + section.pairs)},
                   pass.stream);
    }
    to += section.pairs;
  }
  return by_token;
}

Result<Rope> Rope::Make(const RopeSpec& spec, int32_t max_context, Ops& ops,
                        int32_t original_context) {
  CHECK(max_context > 0 && original_context >= 0 && original_context < max_context);
  constexpr size_t kMaxBytes = size_t{1} << 30;  // 2 million positions of 128 dimensions
  constexpr int32_t kChunk = 4096;               // positions
  const auto width = static_cast<size_t>(spec.rotary_dim);
  const size_t num_rows = static_cast<size_t>(original_context) + static_cast<size_t>(max_context);
  const size_t bytes = num_rows * width * sizeof(float);
  if (bytes > kMaxBytes) {
    return ResourceExhausted(
        "a context of {} positions needs a RoPE table of {} bytes, and at most {} are supported; "
        "ask for a shorter context",
        max_context, bytes, kMaxBytes);
  }
  ASSIGN_OR_RETURN(Buffer storage, ops.Allocate(bytes, MemoryKind::kDevice));
  const Tensor cos_sin(storage.data(), DType::kF32,
                       Shape{static_cast<int64_t>(num_rows), spec.rotary_dim});
  const RopeTable table{cos_sin, spec.rotary_dim, spec.style};
  if (storage.data() == nullptr) return Rope(std::move(storage), table);  // the counting backend

  const auto scale = static_cast<float>(spec.attention_factor);
  const std::unique_ptr<Stream> stream = ops.MakeStream();
  std::vector<float> rows;
  // Fills the table's rows [first, first + context) with positions [0, context).
  const auto fill = [&](int32_t first, int32_t context) -> Status {
    const std::vector<float> frequencies = RopeFrequencies(spec, context);
    for (int32_t begin = 0; begin < context; begin += kChunk) {
      const int32_t end = std::min(context, begin + kChunk);
      rows.resize(static_cast<size_t>(end - begin) * width);
      float* row = rows.data();
      for (int32_t position = begin; position < end; ++position, row += width) {
        FillCosSin(position, frequencies, scale, row);
      }
      ops.CopyToDevice(cos_sin.RowData(first + begin), rows.data(), rows.size() * sizeof(float),
                       *stream);
      RETURN_IF_ERROR(ops.Synchronize(*stream));
    }
    return Status();
  };
  if (original_context > 0) RETURN_IF_ERROR(fill(0, original_context));
  RETURN_IF_ERROR(fill(original_context, max_context));
  return Rope(std::move(storage), table);
}

}  // namespace tokamak::nn
