#include "weights/row_range.h"

#include <utility>

#include "base/check.h"

namespace tokamak {
namespace {

class RowRangeSource final : public WeightSource {
 public:
  RowRangeSource(std::shared_ptr<const WeightSource> source, int64_t begin, int64_t end)
      : source_(std::move(source)), begin_(begin), shape_{end - begin, source_->shape().cols()} {}

  const std::string& name() const override { return source_->name(); }
  DType dtype() const override { return source_->dtype(); }
  const Shape& shape() const override { return shape_; }
  Status ReadRows(int64_t begin, int64_t end, std::byte* destination) const override {
    return source_->ReadRows(begin_ + begin, begin_ + end, destination);
  }

 private:
  const std::shared_ptr<const WeightSource> source_;
  const int64_t begin_;
  const Shape shape_;
};

}  // namespace

std::shared_ptr<const WeightSource> RowRange(std::shared_ptr<const WeightSource> source,
                                             int64_t begin, int64_t end) {
  CHECK(0 <= begin && begin <= end && end <= source->shape().rows());
  return std::make_shared<RowRangeSource>(std::move(source), begin, end);
}

}  // namespace tokamak
