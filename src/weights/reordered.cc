#include "weights/reordered.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/error.h"
#include "base/mutex.h"
#include "quant/quantize.h"

namespace tokamak {
namespace {

class EveryNthRowSource final : public WeightSource {
 public:
  EveryNthRowSource(std::shared_ptr<const WeightSource> source, int64_t first, int64_t step)
      : source_(std::move(source)),
        first_(first),
        step_(step),
        shape_{(source_->shape().rows() - first + step - 1) / step, source_->shape().cols()} {}

  const std::string& name() const override { return source_->name(); }
  DType dtype() const override { return source_->dtype(); }
  const Shape& shape() const override { return shape_; }
  Status ReadRows(int64_t begin, int64_t end, std::byte* destination) const override {
    CHECK(0 <= begin && begin <= end && end <= shape_.rows());
    if (begin == end) return Status();
    // One read of the whole range, which is `step` times as much as needed.
    const size_t row_bytes = RowBytes(dtype(), shape_.cols());
    const int64_t stored = first_ + begin * step_, last = first_ + (end - 1) * step_;
    std::vector<std::byte> rows(static_cast<size_t>(last + 1 - stored) * row_bytes);
    RETURN_IF_ERROR(source_->ReadRows(stored, last + 1, rows.data()));
    for (int64_t row = begin; row < end; ++row, destination += row_bytes) {
      std::memcpy(destination, rows.data() + static_cast<size_t>((row - begin) * step_) * row_bytes,
                  row_bytes);
    }
    return Status();
  }

 private:
  const std::shared_ptr<const WeightSource> source_;
  const int64_t first_, step_;
  const Shape shape_;
};

class TransposedSource final : public WeightSource {
 public:
  TransposedSource(std::shared_ptr<const WeightSource> source, int64_t begin, int64_t end)
      : source_(std::move(source)),
        begin_(begin),
        shape_{source_->shape().cols(), end - begin},
        element_bytes_(RowBytes(source_->dtype(), 1)) {}

  const std::string& name() const override { return source_->name(); }
  DType dtype() const override { return source_->dtype(); }
  const Shape& shape() const override { return shape_; }
  Status ReadRows(int64_t begin, int64_t end, std::byte* destination) const override {
    CHECK(0 <= begin && begin <= end && end <= shape_.rows());
    RETURN_IF_ERROR(Load());
    const size_t row_bytes = static_cast<size_t>(shape_.cols()) * element_bytes_;
    std::memcpy(destination, elements_.data() + static_cast<size_t>(begin) * row_bytes,
                static_cast<size_t>(end - begin) * row_bytes);
    return Status();
  }

 private:
  // `elements_` does not change after the first success.
  Status Load() const EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    if (loaded_) return Status();
    const int64_t rows = shape_.cols(), cols = shape_.rows();  // as stored
    std::vector<std::byte> stored(static_cast<size_t>(rows * cols) * element_bytes_);
    RETURN_IF_ERROR(source_->ReadRows(begin_, begin_ + rows, stored.data()));
    elements_.resize(stored.size());
    constexpr int64_t kTile = 16;  // per direction, to stay within a few cache lines
    for (int64_t i = 0; i < rows; i += kTile) {
      for (int64_t j = 0; j < cols; ++j) {
        for (int64_t k = i; k < std::min(rows, i + kTile); ++k) {
          std::memcpy(elements_.data() + static_cast<size_t>(j * rows + k) * element_bytes_,
                      stored.data() + static_cast<size_t>(k * cols + j) * element_bytes_,
                      element_bytes_);
        }
      }
    }
    loaded_ = true;
    return Status();
  }

  const std::shared_ptr<const WeightSource> source_;
  const int64_t begin_;
  const Shape shape_;
  const size_t element_bytes_;
  mutable Mutex mutex_;
  mutable bool loaded_ GUARDED_BY(mutex_) = false;
  mutable std::vector<std::byte> elements_;  // written under mutex_, before loaded_
};

class MatrixSource final : public WeightSource {
 public:
  explicit MatrixSource(std::shared_ptr<const WeightSource> source)
      : source_(std::move(source)),
        shape_{source_->shape()[0], source_->shape().elements() / source_->shape()[0]} {}

  const std::string& name() const override { return source_->name(); }
  DType dtype() const override { return source_->dtype(); }
  const Shape& shape() const override { return shape_; }
  Status ReadRows(int64_t begin, int64_t end, std::byte* destination) const override {
    const int64_t rows = source_->shape().rows() / shape_.rows();
    return source_->ReadRows(begin * rows, end * rows, destination);
  }

 private:
  const std::shared_ptr<const WeightSource> source_;
  const Shape shape_;
};

class ChannelsLastSource final : public WeightSource {
 public:
  ChannelsLastSource(std::shared_ptr<const WeightSource> matrix, int64_t channels)
      : matrix_(std::move(matrix)), channels_(channels) {}

  const std::string& name() const override { return matrix_->name(); }
  DType dtype() const override { return matrix_->dtype(); }
  const Shape& shape() const override { return matrix_->shape(); }
  Status ReadRows(int64_t begin, int64_t end, std::byte* destination) const override {
    const size_t element = RowBytes(dtype(), 1);
    const int64_t places = shape().cols() / channels_;
    std::vector<std::byte> stored(static_cast<size_t>((end - begin) * shape().cols()) * element);
    RETURN_IF_ERROR(matrix_->ReadRows(begin, end, stored.data()));
    for (int64_t row = 0; row < end - begin; ++row) {
      for (int64_t place = 0; place < places; ++place) {
        for (int64_t channel = 0; channel < channels_; ++channel, destination += element) {
          const int64_t at = row * shape().cols() + channel * places + place;
          std::memcpy(destination, stored.data() + static_cast<size_t>(at) * element, element);
        }
      }
    }
    return Status();
  }

 private:
  const std::shared_ptr<const WeightSource> matrix_;
  const int64_t channels_;
};

class FloatSource final : public WeightSource {
 public:
  explicit FloatSource(std::shared_ptr<const WeightSource> source) : source_(std::move(source)) {}

  const std::string& name() const override { return source_->name(); }
  DType dtype() const override { return DType::kF32; }
  const Shape& shape() const override { return source_->shape(); }
  Status ReadRows(int64_t begin, int64_t end, std::byte* destination) const override {
    const int64_t cols = shape().cols();
    const size_t row_bytes = RowBytes(source_->dtype(), cols);
    std::vector<std::byte> stored(static_cast<size_t>(end - begin) * row_bytes);
    RETURN_IF_ERROR(source_->ReadRows(begin, end, stored.data()));
    std::vector<float> values(static_cast<size_t>(cols));
    for (const std::byte* row = stored.data(); begin < end; ++begin, row += row_bytes) {
      DequantizeRow(source_->dtype(), row, cols, values.data());
      std::memcpy(destination, values.data(), values.size() * sizeof(float));
      destination += values.size() * sizeof(float);
    }
    return Status();
  }

 private:
  const std::shared_ptr<const WeightSource> source_;
};

class MinusOneSource final : public WeightSource {
 public:
  explicit MinusOneSource(std::shared_ptr<const WeightSource> source)
      : source_(std::move(source)) {}

  const std::string& name() const override { return source_->name(); }
  DType dtype() const override { return DType::kF32; }
  const Shape& shape() const override { return source_->shape(); }
  Status ReadRows(int64_t begin, int64_t end, std::byte* destination) const override {
    std::vector<float> values(static_cast<size_t>((end - begin) * shape().cols()));
    const std::span<std::byte> bytes = std::as_writable_bytes(std::span(values));
    RETURN_IF_ERROR(source_->ReadRows(begin, end, bytes.data()));
    for (float& value : values) value -= 1;
    std::ranges::copy(bytes, destination);  // maybe of no rows
    return Status();
  }

 private:
  const std::shared_ptr<const WeightSource> source_;
};

}  // namespace

Result<std::shared_ptr<const WeightSource>> MinusOne(std::shared_ptr<const WeightSource> source) {
  if (source->dtype() != DType::kF32 || source->shape().rank() != 1) {
    return Unimplemented("{}: has type {} and shape {}, expected an F32 vector", source->name(),
                         Name(source->dtype()), source->shape().ToString());
  }
  return std::shared_ptr<const WeightSource>(std::make_shared<MinusOneSource>(std::move(source)));
}

Result<std::shared_ptr<const WeightSource>> AsMatrix(std::shared_ptr<const WeightSource> source) {
  CHECK(source->shape().elements() > 0);
  if (IsBlockType(source->dtype())) {
    return Unimplemented("{}: type {} is not supported for a weight of shape {}", source->name(),
                         Name(source->dtype()), source->shape().ToString());
  }
  return std::shared_ptr<const WeightSource>(std::make_shared<MatrixSource>(std::move(source)));
}

Result<std::shared_ptr<const WeightSource>> AsChannelsLastMatrix(
    std::shared_ptr<const WeightSource> source, int64_t channels) {
  CHECK(channels > 0 && source->shape().elements() / source->shape()[0] % channels == 0);
  ASSIGN_OR_RETURN(std::shared_ptr<const WeightSource> matrix, AsMatrix(std::move(source)));
  return std::shared_ptr<const WeightSource>(
      std::make_shared<ChannelsLastSource>(std::move(matrix), channels));
}

std::shared_ptr<const WeightSource> WithoutBlocks(std::shared_ptr<const WeightSource> source) {
  if (!IsBlockType(source->dtype())) return source;
  return std::make_shared<FloatSource>(std::move(source));
}

std::shared_ptr<const WeightSource> EveryNthRow(std::shared_ptr<const WeightSource> source,
                                                int64_t first, int64_t step) {
  CHECK(0 <= first && first < step);
  return std::make_shared<EveryNthRowSource>(std::move(source), first, step);
}

Result<std::shared_ptr<const WeightSource>> Transposed(std::shared_ptr<const WeightSource> source,
                                                       int64_t begin, int64_t end) {
  CHECK(0 <= begin && begin <= end && end <= source->shape().rows());
  if (IsBlockType(source->dtype())) {
    return Unimplemented("{}: a weight of type {} cannot be transposed", source->name(),
                         Name(source->dtype()));
  }
  return std::shared_ptr<const WeightSource>(
      std::make_shared<TransposedSource>(std::move(source), begin, end));
}

}  // namespace tokamak
