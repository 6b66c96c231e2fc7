// EncoderRows: which rows of the encoder cache hold which image.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "step/step_input.h"
#include "tokamak/status.h"

namespace tokamak {

// An image gets any free rows, so the cache has no gaps that nothing fits into. Owned by the
// runner's thread.
class EncoderRows {
 public:
  explicit EncoderRows(int32_t num_rows);

  // kInternal, with the image, unless the cache has it.
  Status Forget(ImageId image);
  // kInternal if the cache has the image already, or too few free rows.
  Status Add(const EncodeImage& image);
  // The row of the cache for each of the image's; null if the cache does not have it.
  const std::vector<int32_t>* Find(ImageId image) const;
  void Clear();

 private:
  const int32_t num_rows_;
  std::vector<int32_t> free_;
  std::map<ImageId, std::vector<int32_t>> rows_;
};

}  // namespace tokamak
