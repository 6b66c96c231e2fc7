// A weight source in memory, for tests and benchmarks.
#pragma once

#include <cstring>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "ops/weight_source.h"
#include "quant/quantize.h"

namespace tokamak {

class MemorySource final : public WeightSource {
 public:
  // `bytes` holds all rows in the stored format.
  MemorySource(std::string name, DType dtype, Shape shape, std::vector<std::byte> bytes)
      : name_(std::move(name)), dtype_(dtype), shape_(shape), bytes_(std::move(bytes)) {
    CHECK(bytes_.size() == RowBytes(dtype, shape.cols()) * static_cast<size_t>(shape.rows()));
  }

  // Rounds `values` to `dtype`.
  static std::shared_ptr<MemorySource> Quantize(std::string name, DType dtype, Shape shape,
                                                std::span<const float> values) {
    const size_t row = RowBytes(dtype, shape.cols());
    std::vector<std::byte> bytes(row * static_cast<size_t>(shape.rows()));
    for (int64_t i = 0; i < shape.rows(); ++i) {
      QuantizeRow(dtype, values.data() + i * shape.cols(), shape.cols(),
                  bytes.data() + static_cast<size_t>(i) * row);
    }
    return std::make_shared<MemorySource>(std::move(name), dtype, shape, std::move(bytes));
  }

  // Normally distributed values times `scale`; the same for the same seed.
  static std::shared_ptr<MemorySource> Random(std::string name, DType dtype, Shape shape,
                                              uint64_t seed, float scale = 1.0f) {
    std::mt19937_64 random(seed);
    std::normal_distribution<float> normal(0.0f, scale);
    std::vector<float> values(static_cast<size_t>(shape.elements()));
    for (float& value : values) value = normal(random);
    return Quantize(std::move(name), dtype, shape, values);
  }

  // The rows as f32, as any reader must decode them.
  std::vector<float> Dequantized() const {
    std::vector<float> values(static_cast<size_t>(shape_.elements()));
    const size_t row = RowBytes(dtype_, shape_.cols());
    for (int64_t i = 0; i < shape_.rows(); ++i) {
      DequantizeRow(dtype_, bytes_.data() + static_cast<size_t>(i) * row, shape_.cols(),
                    values.data() + i * shape_.cols());
    }
    return values;
  }

  const std::string& name() const override { return name_; }
  DType dtype() const override { return dtype_; }
  const Shape& shape() const override { return shape_; }
  Status ReadRows(int64_t begin, int64_t end, std::byte* destination) const override {
    CHECK(0 <= begin && begin <= end && end <= shape_.rows());
    const size_t row = RowBytes(dtype_, shape_.cols());
    if (begin < end) {
      std::memcpy(destination, bytes_.data() + static_cast<size_t>(begin) * row,
                  static_cast<size_t>(end - begin) * row);
    }
    return Status();
  }

 private:
  std::string name_;
  DType dtype_;
  Shape shape_;
  std::vector<std::byte> bytes_;
};

}  // namespace tokamak
