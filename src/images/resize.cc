// Each pixel of the result is a weighted sum of input pixels, first along x, then along y. As in
// ATen's upsample_avx_bilinear_bicubic_uint8, weights are 16-bit integers with one scale for an
// axis, and sums are rounded to 8 bits after each axis. That decides the bits.
#include "images/resize.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "base/check.h"

namespace tokamak {
namespace {

// The input pixels of one output pixel: [first, first + count), whose weights start at `weights`.
struct Taps {
  int32_t first, count;
  size_t weights;
};

struct Axis {
  std::vector<Taps> taps = {};  // [output size]
  std::vector<int32_t> weights = {};
  int shift = 0;  // weights add up to about 1 << shift
};

double Weight(double x, Resampling resampling) {
  x = std::abs(x);
  if (resampling == Resampling::kBilinear) return x < 1 ? 1 - x : 0;
  constexpr double kA = -0.5;  // Keys' cubic convolution
  if (x < 1) return ((((kA + 2) * x) - (kA + 3)) * x * x) + 1;
  if (x < 2) return ((((x - 5) * x + 8) * x) - 4) * kA;
  return 0;
}

// Rounds a number of 0 or more as ATen does: the largest double below 0.5 becomes 1.
int32_t RoundHalfUp(double x) {
  const double sum = x + 0.5;
  return static_cast<int32_t>(sum);
}

Axis MakeAxis(int32_t from, int32_t to, Resampling resampling) {
  const double scale = static_cast<double>(from) / to;
  // Shrinking stretches the filter over all pixels that become one.
  const double stretch = std::max(scale, 1.0), inverse = 1.0 / stretch;
  const double support = (resampling == Resampling::kBicubic ? 2.0 : 1.0) * stretch;
  Axis axis;
  std::vector<double> weights;
  double largest = 0;
  for (int32_t i = 0; i < to; ++i) {
    const double center = scale * (i + 0.5);
    const int32_t first = RoundHalfUp(std::max(center - support, 0.0));
    const int32_t end = std::min(RoundHalfUp(center + support), from);
    axis.taps.push_back({first, end - first, weights.size()});
    double total = 0;
    for (int32_t j = first; j < end; ++j) {
      weights.push_back(Weight((j - center + 0.5) * inverse, resampling));
      total += weights.back();
    }
    for (size_t j = axis.taps.back().weights; j < weights.size(); ++j) {
      weights[j] /= total;
      largest = std::max(largest, weights[j]);
    }
  }
  constexpr int kMaxShift = 22;
  while (axis.shift < kMaxShift && RoundHalfUp(largest * (1 << (axis.shift + 1))) < 1 << 15) {
    ++axis.shift;
  }
  for (const double weight : weights) {
    const double scaled = weight * (1 << axis.shift);
    axis.weights.push_back(scaled < 0 ? -RoundHalfUp(-scaled) : RoundHalfUp(scaled));
  }
  return axis;
}

uint8_t Round(int32_t sum, int shift) {
  return static_cast<uint8_t>(std::clamp(sum >> shift, 0, 255));
}

Image ResizeWidth(const Image& from, int32_t width, Resampling resampling) {
  const Axis axis = MakeAxis(from.width, width, resampling);
  Image to{width, from.height};
  to.rgb.resize(size_t{3} * width * from.height);
  uint8_t* out = to.rgb.data();
  for (int32_t y = 0; y < from.height; ++y) {
    const uint8_t* row = &from.rgb[size_t{3} * from.width * y];
    for (const Taps& taps : axis.taps) {
      const uint8_t* in = row + (size_t{3} * taps.first);
      const int32_t* weights = &axis.weights[taps.weights];
      const int32_t half = 1 << (axis.shift - 1);
      int32_t red = half, green = half, blue = half;
      for (int32_t i = 0; i < taps.count; ++i, in += 3) {
        red += weights[i] * in[0];
        green += weights[i] * in[1];
        blue += weights[i] * in[2];
      }
      *out++ = Round(red, axis.shift);
      *out++ = Round(green, axis.shift);
      *out++ = Round(blue, axis.shift);
    }
  }
  return to;
}

Image ResizeHeight(const Image& from, int32_t height, Resampling resampling) {
  const Axis axis = MakeAxis(from.height, height, resampling);
  const size_t stride = size_t{3} * from.width;
  Image to{from.width, height};
  to.rgb.resize(stride * height);
  std::vector<int32_t> sums(stride);
  for (int32_t y = 0; y < height; ++y) {
    const Taps& taps = axis.taps[y];
    std::fill(sums.begin(), sums.end(), 1 << (axis.shift - 1));
    for (int32_t i = 0; i < taps.count; ++i) {
      const uint8_t* in = &from.rgb[stride * (taps.first + i)];
      const int32_t weight = axis.weights[taps.weights + i];
      for (size_t x = 0; x < stride; ++x) sums[x] += weight * in[x];
    }
    uint8_t* out = &to.rgb[stride * y];
    for (size_t x = 0; x < stride; ++x) out[x] = Round(sums[x], axis.shift);
  }
  return to;
}

}  // namespace

Image Resize(const Image& image, int32_t width, int32_t height, Resampling resampling) {
  CHECK(image.width > 0 && image.height > 0 && width > 0 && height > 0);
  if (width == image.width && height == image.height) return image;
  if (width == image.width) return ResizeHeight(image, height, resampling);
  const Image wide = ResizeWidth(image, width, resampling);
  return height == image.height ? wide : ResizeHeight(wide, height, resampling);
}

}  // namespace tokamak
