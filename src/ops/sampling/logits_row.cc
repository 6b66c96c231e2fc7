#include "ops/sampling/logits_row.h"

#include <algorithm>
#include <limits>

#include "base/check.h"
#include "ops/sampling/row_sums.h"

namespace tokamak::sampling {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr int kLanes = 16;  // independent accumulators, for the vectorizer

}  // namespace

RowScan Scan(std::span<const float> row) {
  float max[kLanes];
  int32_t bad[kLanes] = {};
  std::fill_n(max, kLanes, -kInf);
  const size_t whole = row.size() / kLanes * kLanes;
  for (size_t begin = 0; begin < whole; begin += kLanes) {
    for (int j = 0; j < kLanes; ++j) {
      const float x = row[begin + j];
      max[j] = x > max[j] ? x : max[j];
      bad[j] |= static_cast<int32_t>(!(x < kInf));
    }
  }
  for (size_t i = whole; i < row.size(); ++i) {
    max[0] = row[i] > max[0] ? row[i] : max[0];
    bad[0] |= static_cast<int32_t>(!(row[i] < kInf));
  }
  RowScan scan{.max = -kInf, .usable = true};
  for (int j = 0; j < kLanes; ++j) {
    scan.max = std::max(scan.max, max[j]);
    scan.usable = scan.usable && bad[j] == 0;
  }
  return scan;
}

TokenId FirstOf(std::span<const float> row, float max) {
  constexpr size_t kBlock = 64;  // one branch per block
  size_t begin = 0;
  for (; begin + kBlock <= row.size(); begin += kBlock) {
    int32_t found = 0;
    for (size_t j = 0; j < kBlock; ++j) found |= static_cast<int32_t>(row[begin + j] == max);
    if (found != 0) break;
  }
  const auto it = std::find(row.begin() + static_cast<std::ptrdiff_t>(begin), row.end(), max);
  CHECK(it != row.end());
  return static_cast<TokenId>(it - row.begin());
}

void KeepSigmas(std::span<float> row, float max, float n) {
  float min = max;
  for (const float x : row) min = x < min && x > -kInf ? x : min;
  SigmaCut cut(max, min);
  SigmaCut::Sums sums;
  for (const float x : row) {
    if (x > -kInf) cut.Add(x, &sums);
  }
  cut.SetReach(sums, n);
  for (float& x : row) {
    if (x > -kInf && !cut.Keeps(x)) x = -kInf;
  }
}

float DynamicTemperatureOf(std::span<const float> row, float max, const SamplingParams& params) {
  constexpr size_t kChunk = 512;
  float weights[kChunk];
  EntropySums sums;
  for (size_t begin = 0; begin < row.size(); begin += kChunk) {
    const auto chunk = row.subspan(begin, std::min(kChunk, row.size() - begin));
    Weigh(chunk, max, weights);
    for (size_t j = 0; j < chunk.size(); ++j) {
      if (chunk[j] > -kInf) sums.Add(chunk[j] - max, RoundMass(weights[j]));
    }
  }
  return DynamicTemperature(sums, params.temperature, params.dynatemp_range,
                            params.dynatemp_exponent);
}

void Temper(std::span<const float> row, float max, float temperature, std::span<float> out) {
  float* to = out.data();
  const float* from = row.data();
  for (size_t t = 0; t < row.size(); ++t) to[t] = (from[t] - max) / temperature;
}

void Weigh(std::span<const float> row, float max, std::span<float> out) {
  float* to = out.data();
  const float* from = row.data();
  for (size_t t = 0; t < row.size(); ++t) to[t] = ExactExp(from[t] - max) * kMassOne;
}

Mass TotalMass(std::span<const float> row, float max) {
  constexpr size_t kChunk = 512;
  float weights[kChunk];
  Mass total = 0;
  for (size_t begin = 0; begin < row.size(); begin += kChunk) {
    const size_t count = std::min(kChunk, row.size() - begin);
    Weigh(row.subspan(begin, count), max, weights);
    for (size_t j = 0; j < count; ++j) total += RoundMass(weights[j]);
  }
  return total;
}

void TopTokens(std::span<const float> row, int32_t count, std::vector<TokenId>* ids) {
  ids->clear();
  if (count <= 0) return;
  const auto better = [row](TokenId a, TokenId b) {
    return row[a] > row[b] || (row[a] == row[b] && a < b);
  };
  // A heap with the worst of the kept ids on top. Ids ascend, so a later equal one never enters.
  float bar = -kInf;
  const size_t wanted = std::min(static_cast<size_t>(count), row.size());
  for (size_t t = 0; t < row.size(); ++t) {
    if (!(row[t] > bar)) continue;
    if (ids->size() == wanted) {
      std::pop_heap(ids->begin(), ids->end(), better);
      ids->back() = static_cast<TokenId>(t);
    } else {
      ids->push_back(static_cast<TokenId>(t));
    }
    std::push_heap(ids->begin(), ids->end(), better);
    if (ids->size() == wanted) bar = row[ids->front()];
  }
  std::sort_heap(ids->begin(), ids->end(), better);
}

void ApplyMask(std::span<const uint32_t> allowed, std::span<float> row) {
  for (size_t begin = 0; begin < row.size(); begin += 32) {
    const uint32_t word = begin / 32 < allowed.size() ? allowed[begin / 32] : 0;
    if (word == ~uint32_t{0}) continue;
    const size_t end = std::min(begin + 32, row.size());
    for (size_t t = begin; t < end; ++t) {
      if ((word >> (t - begin) & 1) == 0) row[t] = -kInf;
    }
  }
}

}  // namespace tokamak::sampling
