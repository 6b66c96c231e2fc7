#include "weights/stored_tensor.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "base/printable.h"

namespace tokamak {
namespace {

class StoredWeight final : public WeightSource {
 public:
  StoredWeight(std::shared_ptr<const ByteSource> file, const StoredTensor& tensor)
      : file_(std::move(file)),
        name_(fmt::format("{}: {}", file_->name(), Quoted(tensor.name))),
        dtype_(*tensor.dtype),
        shape_(tensor.shape),
        offset_(tensor.offset),
        row_bytes_(RowBytes(dtype_, shape_.cols())) {}

  const std::string& name() const override { return name_; }
  DType dtype() const override { return dtype_; }
  const Shape& shape() const override { return shape_; }
  Status ReadRows(int64_t begin, int64_t end, std::byte* destination) const override {
    CHECK(0 <= begin && begin <= end && end <= shape_.rows());
    return file_
        ->ReadOn(offset_ + static_cast<uint64_t>(begin) * row_bytes_, destination,
                 static_cast<size_t>(end - begin) * row_bytes_)
        .WithContext(name_);
  }

 private:
  const std::shared_ptr<const ByteSource> file_;
  const std::string name_;
  const DType dtype_;
  const Shape shape_;
  const uint64_t offset_;
  const size_t row_bytes_;
};

}  // namespace

std::shared_ptr<const WeightSource> MakeStoredWeight(std::shared_ptr<const ByteSource> file,
                                                     const StoredTensor& tensor) {
  return std::make_shared<StoredWeight>(std::move(file), tensor);
}

Status CheckNoneUnused(const std::string& path, const std::vector<std::string>& unused) {
  constexpr size_t kShown = 10;
  if (unused.empty()) return Status();
  std::vector<std::string> shown;
  for (size_t i = 0; i < std::min(unused.size(), kShown); ++i) shown.push_back(Quoted(unused[i]));
  return Unimplemented(
      "{}: has {} tensor{} that this architecture does not use: {}{}. Without them the model would "
      "compute something else than was trained.",
      path, unused.size(), unused.size() == 1 ? "" : "s", fmt::join(shown, ", "),
      unused.size() > kShown ? fmt::format(" and {} more", unused.size() - kShown) : "");
}

}  // namespace tokamak
