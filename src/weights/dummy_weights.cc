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

class DummyWeight final : public WeightSource {
 public:
  DummyWeight(std::string name, DType dtype, const Shape& shape, const RandomWeight& random)
      : name_(std::move(name)), dtype_(dtype), shape_(shape), random_(random) {}

  const std::string& name() const override { return name_; }
  DType dtype() const override { return dtype_; }
  const Shape& shape() const override { return shape_; }
  Status ReadRows(int64_t begin, int64_t end, std::byte* destination) const override {
    CHECK(0 <= begin && begin <= end && end <= shape_.rows());
    const int64_t cols = shape_.cols();
    const size_t row_bytes = RowBytes(dtype_, cols);
    std::vector<float> row(static_cast<size_t>(cols));
    for (int64_t i = begin; i < end; ++i, destination += row_bytes) {
      const uint64_t row_seed = random_.RowSeed(i);
      for (int64_t j = 0; j < cols; ++j) row[static_cast<size_t>(j)] = random_.At(row_seed, j);
      QuantizeRow(dtype_, row.data(), cols, destination);
    }
    return Status();
  }
  std::optional<RandomWeight> random() const override { return random_; }

 private:
  const std::string name_;
  const DType dtype_;
  const Shape shape_;
  const RandomWeight random_;
};

class DummyTensors final : public TensorSource {
 public:
  DummyTensors(std::string source, DType dtype, DType expert_dtype, uint64_t seed)
      : source_(std::move(source)), dtype_(dtype), expert_dtype_(expert_dtype), seed_(seed) {}

  bool Has(std::string_view) const override { return false; }

  Result<std::shared_ptr<const WeightSource>> Find(std::string_view name, const Shape& expected,
                                                   std::string_view) override {
    const bool is_vector = expected.rank() == 1;
    const bool is_norm = is_vector && name.ends_with("norm.weight");
    const bool of_expert = name.find(".experts.") != std::string_view::npos;
    DType dtype = is_vector ? DType::kF32 : of_expert ? expert_dtype_ : dtype_;
    if (expected.cols() % Info(dtype).block_elements != 0) dtype = DType::kBF16;
    return std::shared_ptr<const WeightSource>(std::make_shared<DummyWeight>(
        fmt::format("dummy:{}: \"{}\"", source_, name), dtype, expected,
        RandomWeight{.seed = Hash64(name.data(), name.size(), seed_),
                     .mean = is_norm ? 1.0f : 0.0f,
                     .deviation = is_norm ? kNormDeviation : kWeightDeviation}));
  }

  void Skip(std::string_view) override {}
  Status CheckAllUsed() const override { return Status(); }

 private:
  const std::string source_;
  const DType dtype_;
  const DType expert_dtype_;
  const uint64_t seed_;
};

}  // namespace

std::shared_ptr<TensorSource> MakeDummyTensors(std::string source, DType dtype, DType expert_dtype,
                                               uint64_t seed) {
  return std::make_shared<DummyTensors>(std::move(source), dtype, expert_dtype, seed);
}

}  // namespace tokamak
