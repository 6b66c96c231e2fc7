#include "nn/testing/random_tensors.h"

#include <cmath>
#include <cstring>
#include <random>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/hash.h"
#include "quant/quantize.h"

namespace tokamak::testing {
namespace {

class StoredWeight final : public WeightSource {
 public:
  StoredWeight(std::string name, DType dtype, const Shape& shape, const std::vector<float>& values)
      : name_(std::move(name)),
        dtype_(dtype),
        shape_(shape),
        bytes_(RowBytes(dtype, shape.elements())) {
    QuantizeRow(dtype, values.data(), shape.elements(), bytes_.data());
  }

  const std::string& name() const override { return name_; }
  DType dtype() const override { return dtype_; }
  const Shape& shape() const override { return shape_; }
  Status ReadRows(int64_t begin, int64_t end, std::byte* destination) const override {
    CHECK(0 <= begin && begin <= end && end <= shape_.rows());
    const size_t row = RowBytes(dtype_, shape_.cols());
    std::memcpy(destination, bytes_.data() + static_cast<size_t>(begin) * row,
                static_cast<size_t>(end - begin) * row);
    return Status();
  }

 private:
  const std::string name_;
  const DType dtype_;
  const Shape shape_;
  std::vector<std::byte> bytes_;
};

}  // namespace

Result<std::shared_ptr<const WeightSource>> RandomTensors::Find(std::string_view name,
                                                                const Shape& expected,
                                                                std::string_view) {
  std::mt19937_64 random(Hash64(name.data(), name.size(), seed_));
  float mean = 0;
  float deviation = 1.5f / std::sqrt(static_cast<float>(expected.cols()));
  if (expected.rank() == 1) {
    mean = name.ends_with("norm.weight") ? 1.0f : 0.0f;
    deviation = 0.3f;
  }
  if (name == "rope_freqs.weight") {
    mean = 3;
    deviation = 0.5f;
  }
  std::vector<float> values(static_cast<size_t>(expected.elements()));
  for (float& value : values) {  // uniform with that deviation; the same on every platform
    const double unit = static_cast<double>(random() >> 11) * 0x1p-53;
    value = mean + deviation * static_cast<float>((unit - 0.5) * std::sqrt(12.0));
  }
  DType dtype = expected.rank() == 1 ? DType::kF32 : matrix_dtype_;
  if (expected.cols() % Info(dtype).block_elements != 0) dtype = DType::kF32;
  return std::shared_ptr<const WeightSource>(
      std::make_shared<StoredWeight>(std::string(name), dtype, expected, values));
}

Checkpoint MakeRandomCheckpoint(std::string_view config_json, uint64_t seed, DType matrix_dtype) {
  Result<JsonValue> config = ParseConfigJson(config_json, "config.json");
  CHECK_MSG(config.ok(), config.status().ToString());
  const JsonValue* const names = config->Find("architectures");
  CHECK(names != nullptr && names->AsArray() != nullptr && names->AsArray()->size() == 1);
  Checkpoint checkpoint;
  checkpoint.source = "config.json";
  checkpoint.architecture = *names->AsArray()->front().AsString();
  checkpoint.config = *std::move(config);
  checkpoint.tensors = std::make_shared<RandomTensors>(seed, matrix_dtype);
  return checkpoint;
}

}  // namespace tokamak::testing
