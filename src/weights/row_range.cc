#include "weights/row_range.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/error.h"

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

class PickedRows final : public WeightSource {
 public:
  PickedRows(std::shared_ptr<const WeightSource> source, std::vector<RowRun> runs)
      : source_(std::move(source)), runs_(std::move(runs)) {
    int64_t rows = 0;
    for (const RowRun& run : runs_) {
      CHECK(0 <= run.begin && run.begin <= run.end && run.end <= source_->shape().rows());
      firsts_.push_back(rows);
      rows += run.end - run.begin;
    }
    shape_ = Shape{rows, source_->shape().cols()};
  }

  const std::string& name() const override { return source_->name(); }
  DType dtype() const override { return source_->dtype(); }
  const Shape& shape() const override { return shape_; }
  Status ReadRows(int64_t begin, int64_t end, std::byte* destination) const override {
    CHECK(0 <= begin && begin <= end && end <= shape_.rows());
    const size_t row_bytes = RowBytes(dtype(), shape_.cols());
    auto first = std::upper_bound(firsts_.begin(), firsts_.end(), begin) - firsts_.begin() - 1;
    for (auto i = static_cast<size_t>(first); begin < end; ++i) {
      const int64_t skip = begin - firsts_[i];
      const int64_t count = std::min(end - begin, runs_[i].end - runs_[i].begin - skip);
      const int64_t at = runs_[i].begin + skip;
      RETURN_IF_ERROR(source_->ReadRows(at, at + count, destination));
      begin += count;
      destination += static_cast<size_t>(count) * row_bytes;
    }
    return Status();
  }

 private:
  const std::shared_ptr<const WeightSource> source_;
  const std::vector<RowRun> runs_;
  std::vector<int64_t> firsts_;  // for each run, its first row in this weight
  Shape shape_;
};

class RowsInTurnSource final : public WeightSource {
 public:
  RowsInTurnSource(std::vector<std::shared_ptr<const WeightSource>> sources, int64_t run,
                   const Shape& shape)
      : sources_(std::move(sources)), run_(run), shape_(shape) {
    int64_t elements = 0;
    for (const auto& source : sources_) {
      CHECK(source->dtype() == dtype());
      elements += source->shape().elements();
    }
    CHECK(elements == shape_.elements());
  }

  const std::string& name() const override { return sources_.front()->name(); }
  DType dtype() const override { return sources_.front()->dtype(); }
  const Shape& shape() const override { return shape_; }
  Status ReadRows(int64_t begin, int64_t end, std::byte* destination) const override {
    CHECK(0 <= begin && begin <= end && end <= shape_.rows());
    if (shape_.rank() == 1) return begin == end ? Status() : ReadVectors(destination);
    const size_t row_bytes = RowBytes(dtype(), shape_.cols());
    const auto turns = static_cast<int64_t>(sources_.size());
    while (begin < end) {
      const int64_t in_run = begin % run_, count = std::min(end - begin, run_ - in_run);
      const int64_t at = begin / (run_ * turns) * run_ + in_run;
      const auto& source = sources_[static_cast<size_t>(begin / run_ % turns)];
      RETURN_IF_ERROR(source->ReadRows(at, at + count, destination));
      begin += count;
      destination += static_cast<size_t>(count) * row_bytes;
    }
    return Status();
  }

 private:
  Status ReadVectors(std::byte* destination) const {
    for (const auto& source : sources_) {
      RETURN_IF_ERROR(source->ReadRows(0, 1, destination));
      destination += RowBytes(dtype(), source->shape().cols());
    }
    return Status();
  }

  const std::vector<std::shared_ptr<const WeightSource>> sources_;
  const int64_t run_;
  const Shape shape_;
};

}  // namespace

std::shared_ptr<const WeightSource> RowsInTurn(
    std::vector<std::shared_ptr<const WeightSource>> sources, int64_t run, const Shape& shape) {
  return std::make_shared<RowsInTurnSource>(std::move(sources), run, shape);
}

std::shared_ptr<const WeightSource> PickRows(std::shared_ptr<const WeightSource> source,
                                             std::vector<RowRun> runs) {
  return std::make_shared<PickedRows>(std::move(source), std::move(runs));
}

std::shared_ptr<const WeightSource> RowRange(std::shared_ptr<const WeightSource> source,
                                             int64_t begin, int64_t end) {
  CHECK(0 <= begin && begin <= end && end <= source->shape().rows());
  return std::make_shared<RowRangeSource>(std::move(source), begin, end);
}

}  // namespace tokamak
