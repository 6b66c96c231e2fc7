#include "tensor/arena.h"

#include <algorithm>
#include <limits>

#include "base/check.h"

namespace tokamak {

Arena Arena::Counting() {
  Arena arena;
  arena.capacity_ = std::numeric_limits<size_t>::max() / 2;
  return arena;
}

Tensor Arena::Allocate(DType dtype, Shape shape) {
  const size_t row = RowBytes(dtype, shape.cols());
  const size_t bytes = row * static_cast<size_t>(shape.rows());
  const size_t begin = (used_ + kAlignment - 1) / kAlignment * kAlignment;
  CHECK_MSG(begin + bytes <= capacity_, "activation arena too small for this step");
  used_ = begin + bytes;
  peak_ = std::max(peak_, used_);
  return Tensor(buffer_ ? buffer_.data() + begin : nullptr, dtype, shape);
}

void Arena::Release(size_t mark) {
  CHECK(mark <= used_);
  used_ = mark;
}

}  // namespace tokamak
