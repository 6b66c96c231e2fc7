#include "runner/encoder_rows.h"

#include <numeric>

#include "base/error.h"

namespace tokamak {

EncoderRows::EncoderRows(int32_t num_rows) : num_rows_(num_rows) { Clear(); }

void EncoderRows::Clear() {
  rows_.clear();
  free_.resize(static_cast<size_t>(num_rows_));
  std::iota(free_.rbegin(), free_.rend(), 0);
}

Status EncoderRows::Forget(ImageId image) {
  const auto found = rows_.find(image);
  if (found == rows_.end()) {
    return Internal("forget: the encoder cache does not have image {}", image);
  }
  free_.insert(free_.end(), found->second.rbegin(), found->second.rend());
  rows_.erase(found);
  return Status();
}

Status EncoderRows::Add(const EncodeImage& image) {
  if (image.id == 0 || rows_.contains(image.id)) {
    return Internal("encode: the encoder cache has image {} already", image.id);
  }
  if (image.num_rows < 1 || static_cast<size_t>(image.num_rows) > free_.size()) {
    return Internal("encode: image {} has {} rows, but {} of {} are free in the encoder cache",
                    image.id, image.num_rows, free_.size(), num_rows_);
  }
  rows_[image.id].assign(free_.rbegin(), free_.rbegin() + image.num_rows);
  free_.resize(free_.size() - static_cast<size_t>(image.num_rows));
  return Status();
}

const std::vector<int32_t>* EncoderRows::Find(ImageId image) const {
  const auto found = rows_.find(image);
  return found == rows_.end() ? nullptr : &found->second;
}

}  // namespace tokamak
