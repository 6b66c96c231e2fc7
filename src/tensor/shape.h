// The dimensions of a tensor, outermost first.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "base/check.h"

namespace tokamak {

class Shape {
 public:
  static constexpr int kMaxRank = 5;

  Shape() = default;  // rank 0: no elements
  Shape(std::initializer_list<int64_t> dims) {
    CHECK(static_cast<int>(dims.size()) <= kMaxRank);
    for (int64_t dim : dims) {
      CHECK(dim >= 0);
      dims_[rank_++] = dim;
    }
  }

  int rank() const { return rank_; }
  int64_t operator[](int i) const { return dims_[i]; }
  // The last dimension, the length of a row.
  int64_t cols() const { return rank_ == 0 ? 0 : dims_[rank_ - 1]; }
  // The product of all but the last dimension.
  int64_t rows() const {
    if (rank_ == 0) return 0;
    int64_t product = 1;
    for (int i = 0; i + 1 < rank_; ++i) product *= dims_[i];
    return product;
  }
  int64_t elements() const { return rows() * cols(); }
  // "[2, 576]".
  std::string ToString() const;

  friend bool operator==(const Shape& a, const Shape& b) = default;

 private:
  std::array<int64_t, kMaxRank> dims_{};
  int rank_ = 0;
};

}  // namespace tokamak
