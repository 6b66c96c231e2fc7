#include "weights/permuted_rows.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/check.h"
#include "base/error.h"

namespace tokamak {
namespace {

class DeinterleavedHeads final : public WeightSource {
 public:
  DeinterleavedHeads(std::shared_ptr<const WeightSource> source, int64_t head_rows)
      : source_(std::move(source)),
        head_rows_(head_rows),
        is_vector_(source_->shape().rank() == 1),
        row_bytes_(is_vector_ ? RowBytes(dtype(), 1) : RowBytes(dtype(), shape().cols())) {}

  const std::string& name() const override { return source_->name(); }
  DType dtype() const override { return source_->dtype(); }
  const Shape& shape() const override { return source_->shape(); }

  Status ReadRows(int64_t begin, int64_t end, std::byte* destination) const override {
    CHECK(0 <= begin && begin <= end && end <= shape().rows());
    if (is_vector_) return begin == end ? Status() : ReadVector(destination);
    std::vector<std::byte> buffer;
    while (begin < end) {
      // Within a head, one read covers all requested rows.
      const int64_t stop = std::min(end, (begin / head_rows_ + 1) * head_rows_);
      int64_t first = Stored(begin);
      int64_t last = first;
      for (int64_t row = begin + 1; row < stop; ++row) {
        first = std::min(first, Stored(row));
        last = std::max(last, Stored(row));
      }
      buffer.resize(static_cast<size_t>(last + 1 - first) * row_bytes_);
      RETURN_IF_ERROR(source_->ReadRows(first, last + 1, buffer.data()));
      for (; begin < stop; ++begin, destination += row_bytes_) {
        std::memcpy(destination,
                    buffer.data() + static_cast<size_t>(Stored(begin) - first) * row_bytes_,
                    row_bytes_);
      }
    }
    return Status();
  }

 private:
  // The position of `row` in the source.
  int64_t Stored(int64_t row) const {
    const int64_t in_head = row % head_rows_;
    const int64_t half = in_head / (head_rows_ / 2);
    const int64_t index = in_head % (head_rows_ / 2);
    return row - in_head + 2 * index + half;
  }

  Status ReadVector(std::byte* destination) const {
    const int64_t elements = shape().cols();
    std::vector<std::byte> stored(static_cast<size_t>(elements) * row_bytes_);
    RETURN_IF_ERROR(source_->ReadRows(0, 1, stored.data()));
    for (int64_t i = 0; i < elements; ++i) {
      std::memcpy(destination + static_cast<size_t>(i) * row_bytes_,
                  stored.data() + static_cast<size_t>(Stored(i)) * row_bytes_, row_bytes_);
    }
    return Status();
  }

  const std::shared_ptr<const WeightSource> source_;
  const int64_t head_rows_;
  const bool is_vector_;
  const size_t row_bytes_;  // for a vector, bytes of an element
};

}  // namespace

Result<std::shared_ptr<const WeightSource>> DeinterleaveHeads(
    std::shared_ptr<const WeightSource> source, int64_t num_heads) {
  const bool is_vector = source->shape().rank() == 1;
  const int64_t rows = is_vector ? source->shape().cols() : source->shape().rows();
  if (num_heads <= 0 || rows % num_heads != 0 || rows / num_heads % 2 != 0) {
    return DataLoss(
        "{} has {} rows, which do not make {} heads of an even size. The file does not match its "
        "own metadata; download it again or report it to its author.",
        source->name(), rows, num_heads);
  }
  if (is_vector && IsBlockType(source->dtype())) {
    return Unimplemented("{}: a vector of type {} cannot be permuted", source->name(),
                         Name(source->dtype()));
  }
  return std::shared_ptr<const WeightSource>(
      std::make_shared<DeinterleavedHeads>(std::move(source), rows / num_heads));
}

}  // namespace tokamak
