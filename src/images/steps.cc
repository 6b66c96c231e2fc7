#include "images/steps.h"

#include <algorithm>
#include <cstddef>

#include "base/check.h"
#include "base/error.h"

namespace tokamak {
namespace {

// 96 MB per image. The largest that a published configuration asks for are 12,845,056.
constexpr int64_t kMaxResizedPixels = int64_t{1} << 25;
// 400 MB: photos are padded before they are resized.
constexpr int64_t kMaxPaddedPixels = int64_t{1} << 27;

Status CheckSize(const Image& image, ImageSize size, int64_t limit, std::string_view change) {
  if (int64_t{size.height} * size.width <= limit) return {};
  return ResourceExhausted(
      "the image of {} x {} pixels would be {} to {} x {}, and {} are the limit; cut off a part of "
      "its longer side",
      image.width, image.height, change, size.width, size.height, limit);
}

// Values of a channel, or one value for all of them.
Channels ReadChannels(const JsonReader& reader, std::string_view name, const Channels& absent,
                      NumberRange range) {
  const JsonReader member = reader[name];
  if (!member.present()) return absent;
  if (member.Size() != absent.size()) {
    member.Bad("an array of 3 numbers");
    return absent;
  }
  Channels channels;
  for (size_t i = 0; i < channels.size(); ++i) channels[i] = member[i].Number(range);
  return channels;
}

}  // namespace

ImageSize TargetSize::For(const Image& image) const {
  if (shortest_edge == 0) return size;
  const auto [shorter, longer] = std::minmax(image.width, image.height);
  const double scaled = static_cast<double>(int64_t{shortest_edge} * longer) / shorter;
  const int32_t longest_edge = static_cast<int32_t>(std::min(scaled, 1e9));
  return image.width <= image.height ? ImageSize{longest_edge, shortest_edge}
                                     : ImageSize{shortest_edge, longest_edge};
}

ValueTable::ValueTable(const JsonReader& reader, const Channels& mean, const Channels& std) {
  constexpr NumberRange kDivisor = {1e-6, 1e6};  // keeps all values finite
  const bool rescale = reader.BoolOr("do_rescale", true);
  const bool normalize = reader.BoolOr("do_normalize", true);
  const double factor = reader.NumberOr("rescale_factor", 1.0 / 255, kDivisor);
  const Channels means = ReadChannels(reader, "image_mean", mean, {-1e6, 1e6});
  const Channels stds = ReadChannels(reader, "image_std", std, kDivisor);
  // transformers scales the mean and the deviation rather than the image.
  const float scale = rescale ? static_cast<float>(1.0 / factor) : 1.0F;
  for (size_t c = 0; c < values_.size(); ++c) {
    mean_levels_[c] = static_cast<uint8_t>(std::clamp(means[c] * 255, 0.0, 255.0));
    const float center = static_cast<float>(means[c]) * scale;
    const float deviation = static_cast<float>(stds[c]) * scale;
    for (size_t i = 0; i < values_[c].size(); ++i) {
      const auto level = static_cast<float>(i);
      values_[c][i] = normalize ? (level - center) / deviation
                      : rescale ? level * static_cast<float>(factor)
                                : level;
    }
  }
}

Resampling ReadResampling(const JsonReader& reader, Resampling absent) {
  constexpr int kBilinear = 2, kBicubic = 3;  // as Pillow counts
  const int32_t resample = reader.IntOr(
      "resample", absent == Resampling::kBilinear ? kBilinear : kBicubic, NonNegative());
  if (resample != kBilinear && resample != kBicubic) {
    reader.Fail(Unimplemented("{} is {}; 2 (bilinear) and 3 (bicubic) are implemented",
                              reader["resample"].path(), resample));
  }
  return resample == kBilinear ? Resampling::kBilinear : Resampling::kBicubic;
}

TargetSize ReadTargetSize(const JsonReader& reader, const TargetSize& absent) {
  const bool square = reader.BoolOr("default_to_square", false);
  const JsonReader size = reader["size"];
  if (!size.present()) return absent;
  TargetSize target;
  if (!size.is_object()) {
    const auto edge = static_cast<int32_t>(size.Int(1, kMaxSide));
    if (square) {
      target.size = {edge, edge};
    } else {
      target.shortest_edge = edge;
    }
  } else if (size.Has("shortest_edge")) {
    size.Only({"shortest_edge"});
    target.shortest_edge = size.Int("shortest_edge", Positive(kMaxSide));
  } else {
    size.Only({"height", "width"});
    target.size = {size.Int("height", Positive(kMaxSide)), size.Int("width", Positive(kMaxSide))};
  }
  return target;
}

std::optional<ImageSize> ReadCropSize(const JsonReader& reader) {
  const JsonReader size = reader["crop_size"];
  if (!size.present()) return std::nullopt;
  if (size.is_object()) {
    size.Only({"height", "width"});
    return ImageSize{size.Int("height", Positive(kMaxSide)), size.Int("width", Positive(kMaxSide))};
  }
  const auto edge = static_cast<int32_t>(size.Int(1, kMaxSide));
  return ImageSize{edge, edge};
}

std::optional<ImageSize> ReadCenterCrop(const JsonReader& reader, std::optional<ImageSize> absent) {
  std::optional<ImageSize> crop = ReadCropSize(reader);
  if (!crop) crop = absent;
  if (!reader.BoolOr("do_center_crop", absent.has_value())) return std::nullopt;
  if (!crop) reader.Fail("crop_size", "is missing, but do_center_crop is true");
  return crop;
}

Result<Image> ResizeWithinLimit(const Image& image, ImageSize size, Resampling resampling) {
  RETURN_IF_ERROR(CheckSize(image, size, kMaxResizedPixels, "scaled"));
  return Resize(image, std::max(size.width, 1), std::max(size.height, 1), resampling);
}

Status CheckMultiples(const Image& image, int32_t unit) {
  if (image.height % unit == 0 && image.width % unit == 0) return Status();
  return InvalidArgument(
      "the image of {} x {} pixels is not resized (do_resize is false), and its sides are not "
      "multiples of {}",
      image.width, image.height, unit);
}

Image Pad(const Image& image, ImageSize size, int32_t left, int32_t top,
          const std::array<uint8_t, 3>& color) {
  CHECK(left >= 0 && left + image.width <= size.width);
  CHECK(top >= 0 && top + image.height <= size.height);
  Image padded{size.width, size.height};
  padded.rgb.resize(size_t{3} * size.width * size.height);
  for (size_t i = 0; i < padded.rgb.size(); i += 3) {
    std::copy(color.begin(), color.end(), &padded.rgb[i]);
  }
  const size_t row = size_t{3} * image.width;
  for (int32_t y = 0; y < image.height; ++y) {
    std::copy_n(&image.rgb[row * y], row,
                &padded.rgb[3 * ((size_t{1} * size.width * (top + y)) + left)]);
  }
  return padded;
}

Result<Image> PadToSquare(const Image& image, const std::array<uint8_t, 3>& color) {
  const int32_t side = std::max(image.width, image.height);
  RETURN_IF_ERROR(CheckSize(image, {side, side}, kMaxPaddedPixels, "padded"));
  return Pad(image, {side, side}, (side - image.width) / 2, (side - image.height) / 2, color);
}

Image Crop(const Image& image, int32_t left, int32_t top, ImageSize size) {
  CHECK(left >= 0 && left + size.width <= image.width);
  CHECK(top >= 0 && top + size.height <= image.height);
  Image part{size.width, size.height};
  part.rgb.reserve(size_t{3} * size.width * size.height);
  for (int32_t y = top; y < top + size.height; ++y) {
    const uint8_t* row = &image.rgb[3 * ((size_t{1} * image.width * y) + left)];
    part.rgb.insert(part.rgb.end(), row, row + (size_t{3} * size.width));
  }
  return part;
}

Image CenterCrop(const Image& image, ImageSize size) {
  if (size.width > image.width || size.height > image.height) {
    const ImageSize both = {std::max(size.height, image.height), std::max(size.width, image.width)};
    return CenterCrop(Pad(image, both, (both.width - image.width) / 2,
                          (both.height - image.height) / 2, {0, 0, 0}),
                      size);
  }
  return Crop(image, (image.width - size.width) / 2, (image.height - size.height) / 2, size);
}

void AppendPatch(const Image& image, const PatchPlace& at, const ValueTable& table,
                 std::vector<float>& values) {
  for (int channel = 0; channel < 3; ++channel) {
    for (int32_t frame = 0; frame < at.frames; ++frame) {
      for (int32_t y = at.top; y < at.top + at.size; ++y) {
        const uint8_t* in = &image.rgb[3 * ((size_t{1} * image.width * y) + at.left)];
        for (int32_t x = 0; x < at.size; ++x) {
          values.push_back(table.Value(channel, in[(3 * x) + channel]));
        }
      }
    }
  }
}

void AppendValues(const Image& image, const ValueTable& table, std::vector<float>& values) {
  values.reserve(values.size() + image.rgb.size());
  for (int channel = 0; channel < 3; ++channel) {
    for (size_t i = channel; i < image.rgb.size(); i += 3) {
      values.push_back(table.Value(channel, image.rgb[i]));
    }
  }
}

}  // namespace tokamak
