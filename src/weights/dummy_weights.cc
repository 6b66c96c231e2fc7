#include "weights/dummy_weights.h"

#include <fmt/format.h>

#include <vector>

#include "base/check.h"
#include "base/error.h"
#include "base/hash.h"
#include "quant/quantize.h"

namespace tokamak {
namespace {

constexpr float kWeightDeviation = 0.02f;
constexpr float kNormDeviation = 0.1f;

// SplitMix64: every state gives an independent-looking number.
uint64_t Mix(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

// About N(0, 1), from the sum of four uniform 16-bit numbers (within ±3.5).
float RoughNormal(uint64_t bits) {
  const int64_t sum = static_cast<int64_t>((bits & 0xffff) + ((bits >> 16) & 0xffff) +
                                           ((bits >> 32) & 0xffff) + (bits >> 48));
  // The sum has mean 2 · 65535 and variance 4 · 65536² / 12.
  constexpr float kInverseDeviation = 1.7320508f / 65536;
  return static_cast<float>(sum - 2 * 65535) * kInverseDeviation;
}

class DummyWeight final : public WeightSource {
 public:
  DummyWeight(std::string name, DType dtype, const Shape& shape, uint64_t seed, float mean,
              float deviation)
      : name_(std::move(name)),
        dtype_(dtype),
        shape_(shape),
        seed_(seed),
        mean_(mean),
        deviation_(deviation) {}

  const std::string& name() const override { return name_; }
  DType dtype() const override { return dtype_; }
  const Shape& shape() const override { return shape_; }
  Status ReadRows(int64_t begin, int64_t end, std::byte* destination) const override {
    CHECK(0 <= begin && begin <= end && end <= shape_.rows());
    const int64_t cols = shape_.cols();
    const size_t row_bytes = RowBytes(dtype_, cols);
    std::vector<float> row(static_cast<size_t>(cols));
    for (int64_t i = begin; i < end; ++i, destination += row_bytes) {
      const uint64_t row_seed = Mix(seed_ + static_cast<uint64_t>(i));
      for (int64_t j = 0; j < cols; ++j) {
        const uint64_t bits = Mix(row_seed + static_cast<uint64_t>(j) * 0x9e3779b97f4a7c15);
        row[static_cast<size_t>(j)] = mean_ + deviation_ * RoughNormal(bits);
      }
      QuantizeRow(dtype_, row.data(), cols, destination);
    }
    return Status();
  }

 private:
  const std::string name_;
  const DType dtype_;
  const Shape shape_;
  const uint64_t seed_;
  const float mean_, deviation_;
};

class DummyTensors final : public TensorSource {
 public:
  DummyTensors(std::string source, DType dtype, uint64_t seed)
      : source_(std::move(source)), dtype_(dtype), seed_(seed) {}

  bool Has(std::string_view) const override { return false; }

  Result<std::shared_ptr<const WeightSource>> Find(std::string_view name, const Shape& expected,
                                                   std::string_view) override {
    const bool is_vector = expected.rank() == 1;
    const bool is_norm = is_vector && name.ends_with("norm.weight");
    DType dtype = is_vector ? DType::kF32 : dtype_;
    if (expected.cols() % Info(dtype).block_elements != 0) dtype = DType::kBF16;
    return std::shared_ptr<const WeightSource>(std::make_shared<DummyWeight>(
        fmt::format("dummy:{}: \"{}\"", source_, name), dtype, expected,
        Hash64(name.data(), name.size(), seed_), is_norm ? 1.0f : 0.0f,
        is_norm ? kNormDeviation : kWeightDeviation));
  }

  Status CheckAllUsed() const override { return Status(); }

 private:
  const std::string source_;
  const DType dtype_;
  const uint64_t seed_;
};

}  // namespace

std::shared_ptr<TensorSource> MakeDummyTensors(std::string source, DType dtype, uint64_t seed) {
  return std::make_shared<DummyTensors>(std::move(source), dtype, seed);
}

}  // namespace tokamak
