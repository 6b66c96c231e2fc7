// A non-owning view of elements: pointer, type, dimensions, distance between rows.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace tokamak {

struct Tensor {
  void* data = nullptr;
  DType dtype = DType::kF32;
  Shape shape;
  // Bytes from one row (last dimension) to the next. Elements of a row are contiguous; a column
  // range of a wider tensor has a stride longer than its row.
  int64_t row_stride = 0;

  Tensor() = default;
  Tensor(void* data, DType dtype, Shape shape)
      : data(data),
        dtype(dtype),
        shape(shape),
        row_stride(static_cast<int64_t>(RowBytes(dtype, shape.cols()))) {}

  int64_t rows() const { return shape.rows(); }
  int64_t cols() const { return shape.cols(); }
  bool empty() const { return shape.elements() == 0; }
  bool contiguous() const {
    return row_stride == static_cast<int64_t>(RowBytes(dtype, shape.cols()));
  }

  // Row stride in elements. Requires f32.
  int64_t float_stride() const { return row_stride / static_cast<int64_t>(sizeof(float)); }

  // Row `i` of the tensor seen as [rows(), cols()].
  std::byte* RowData(int64_t i) const { return static_cast<std::byte*>(data) + i * row_stride; }
  template <typename T>
  T* Row(int64_t i) const {
    return reinterpret_cast<T*>(RowData(i));
  }

  // Rows [begin, end) as [end - begin, cols()]. Null data (in counting passes) stays null.
  Tensor Rows(int64_t begin, int64_t end) const {
    CHECK(0 <= begin && begin <= end && end <= rows());
    Tensor view = *this;
    if (data != nullptr) view.data = RowData(begin);
    view.shape = Shape{end - begin, cols()};
    return view;
  }
  // Columns [begin, end) as [rows(), end - begin]. Must be whole blocks.
  Tensor Cols(int64_t begin, int64_t end) const {
    CHECK(0 <= begin && begin <= end && end <= cols());
    Tensor view = *this;
    if (data != nullptr) view.data = static_cast<std::byte*>(data) + RowBytes(dtype, begin);
    view.shape = Shape{rows(), end - begin};
    return view;
  }
};

}  // namespace tokamak
