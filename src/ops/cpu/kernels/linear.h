// One work item of Linear: unpacks the weights of a few panels to f32, a piece of k at a time, and
// multiplies them with all rows of x. The unpacked piece stays in L1 (few rows) or L2 (many), so
// that each item unpacks only once.
//
// Bound: num_panels · panel_bytes of weights; 2 · num_tokens · num_outputs · cols FLOPs.
#pragma once

#include "ops/cpu/kernels.h"
#include "ops/cpu/kernels/multiply.h"
#include "ops/cpu/kernels/unpack.h"

namespace tokamak::cpu {

template <class V>
struct LinearKernel {
  static constexpr int kFewRows = 6;
  // k per piece if rows are few: 4 panels of it take 8 KiB.
  static constexpr int kSmallPiece = 32;
  static constexpr int kAccStride = 16 * kMaxPanels;

  static void Run(const LinearTask& task) {
    for (int64_t k = 0; k < task.cols; k += kChunk) {
      const int count = static_cast<int>(task.cols - k < kChunk ? task.cols - k : kChunk);
      if (task.num_tokens <= kFewRows) {
        FewRows(task, k, count);
      } else {
        ManyRows(task, k, count);
      }
    }
    if (task.cols == 0) StoreZeros(task);
  }

 private:
  static const float* X(const LinearTask& task, int64_t row) {
    return reinterpret_cast<const float*>(task.x + row * task.x_stride);
  }
  static int64_t XStride(const LinearTask& task) {
    return task.x_stride / static_cast<int64_t>(sizeof(float));
  }

  static void UnpackAll(const LinearTask& task, int64_t k, int count) {
    for (int p = 0; p < task.num_panels; ++p) {
      Unpack<V>::Run(task.dtype, task.panels + p * task.panel_bytes, k, count,
                     task.tile + static_cast<int64_t>(p) * count * 16);
    }
  }

  static void FewRows(const LinearTask& task, int64_t k, int count) {
    alignas(64) float acc[kFewRows * kAccStride];
    Clear(acc, task.num_tokens);
    for (int done = 0; done < count; done += kSmallPiece) {
      const int piece = count - done < kSmallPiece ? count - done : kSmallPiece;
      UnpackAll(task, k + done, piece);
      Multiply<V>::Run({.tile = task.tile,
                        .panel_stride = static_cast<int64_t>(piece) * 16,
                        .x = X(task, 0) + k + done,
                        .x_stride = XStride(task),
                        .k = piece,
                        .acc = acc,
                        .acc_stride = kAccStride},
                       task.num_tokens, task.num_panels);
    }
    AddChunk(task, k, 0, task.num_tokens, acc);
  }

  static void ManyRows(const LinearTask& task, int64_t k, int count) {
    UnpackAll(task, k, count);
    for (int64_t row = 0; row < task.num_tokens; row += V::kMaxRows) {
      const int64_t rows =
          task.num_tokens - row < V::kMaxRows ? task.num_tokens - row : V::kMaxRows;
      alignas(64) float acc[kFewRows * kAccStride];
      Clear(acc, rows);
      Multiply<V>::Run({.tile = task.tile,
                        .panel_stride = static_cast<int64_t>(count) * 16,
                        .x = X(task, row) + k,
                        .x_stride = XStride(task),
                        .k = count,
                        .acc = acc,
                        .acc_stride = kAccStride},
                       rows, task.num_panels);
      AddChunk(task, k, row, rows, acc);
    }
  }

  static void Clear(float* acc, int64_t rows) {
    for (int64_t i = 0; i < rows * kAccStride; i += V::kLanes) V::Store(acc + i, V::Zero());
  }

  // out = sum for the first chunk, out += sum for the others; adds the bias after the last one.
  static void AddChunk(const LinearTask& task, int64_t k, int64_t row, int64_t rows,
                       const float* acc) {
    const bool first = k == 0;
    const float* bias = k + kChunk >= task.cols ? task.bias : nullptr;
    for (int64_t r = 0; r < rows; ++r) {
      float* out = task.out + (row + r) * task.out_stride;
      const float* sum = acc + r * kAccStride;
      int64_t n = 0;
      for (; n + V::kLanes <= task.num_outputs; n += V::kLanes) {
        typename V::F total = V::Load(sum + n);
        if (!first) total = V::Add(V::Load(out + n), total);
        if (bias != nullptr) total = V::Add(total, V::Load(bias + n));
        V::Store(out + n, total);
      }
      for (; n < task.num_outputs; ++n) {
        float total = sum[n];
        if (!first) total = out[n] + total;
        if (bias != nullptr) total = total + bias[n];
        out[n] = total;
      }
    }
  }

  static void StoreZeros(const LinearTask& task) {
    for (int64_t t = 0; t < task.num_tokens; ++t) {
      for (int64_t n = 0; n < task.num_outputs; ++n) {
        task.out[t * task.out_stride + n] = task.bias != nullptr ? task.bias[n] : 0.0f;
      }
    }
  }
};

}  // namespace tokamak::cpu
