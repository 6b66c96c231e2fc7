#include "images/decode.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>

#include "base/byte_count.h"
#include "base/error.h"
#include "base/printable.h"
#include "images/decoders.h"

namespace tokamak {
namespace {

using Decoder = Result<StoredImage> (*)(std::string_view, const DecodeLimits&);

struct Format {
  const char* name;
  Decoder decode;
};

Format FormatOf(std::string_view bytes) {
  using std::string_view_literals::operator""sv;
  if (bytes.starts_with("\xff\xd8\xff"sv)) return {"JPEG", DecodeJpeg};
  if (bytes.starts_with("\x89PNG\r\n\x1a\n"sv)) return {"PNG", DecodePng};
  if (bytes.starts_with("RIFF"sv) && bytes.substr(0, 12).ends_with("WEBP"sv)) {
    return {"WebP", DecodeWebp};
  }
  if (bytes.starts_with("GIF87a"sv) || bytes.starts_with("GIF89a"sv)) return {"GIF", DecodeGif};
  return {nullptr, nullptr};
}

// Turns an image that is stored in one of EXIF's orientations.
Image Upright(const StoredImage& stored) {
  const Image& from = stored.image;
  const bool transposed = stored.orientation >= 5;
  Image to{transposed ? from.height : from.width, transposed ? from.width : from.height};
  to.rgb.resize(from.rgb.size());
  const int32_t right = from.width - 1, bottom = from.height - 1;
  uint8_t* out = to.rgb.data();
  for (int32_t y = 0; y < to.height; ++y) {
    for (int32_t x = 0; x < to.width; ++x) {
      int32_t from_x = transposed ? y : x, from_y = transposed ? x : y;
      if (stored.orientation == 2 || stored.orientation == 3 || stored.orientation >= 7) {
        from_x = right - from_x;
      }
      if (stored.orientation == 3 || stored.orientation == 4 || stored.orientation == 6 ||
          stored.orientation == 7) {
        from_y = bottom - from_y;
      }
      const uint8_t* in = &from.rgb[(size_t{3} * from_y * from.width) + (size_t{3} * from_x)];
      out = std::copy_n(in, 3, out);
    }
  }
  return to;
}

}  // namespace

Status CheckFileSize(uint64_t bytes, const DecodeLimits& limits) {
  if (bytes == 0) return InvalidArgument("the image is empty");
  if (bytes <= limits.max_bytes) return Status();
  return ResourceExhausted("the image is {} long, and the limit is {}; send a smaller one",
                           ByteCount(static_cast<int64_t>(bytes)),
                           ByteCount(static_cast<int64_t>(limits.max_bytes)));
}

Result<Image> NewImage(uint64_t width, uint64_t height, const DecodeLimits& limits) {
  const auto side = static_cast<uint64_t>(limits.max_side);
  if (width == 0 || height == 0) return DataLoss("it is {} x {} pixels", width, height);
  if (width > side || height > side) {
    return ResourceExhausted("it is {} x {} pixels, and each side may have {}; send a smaller one",
                             width, height, side);
  }
  if (width * height > static_cast<uint64_t>(limits.max_pixels)) {
    return ResourceExhausted("it is {} x {} = {} pixels, and the limit is {}; send a smaller one",
                             width, height, width * height, limits.max_pixels);
  }
  Image image{static_cast<int32_t>(width), static_cast<int32_t>(height)};
  image.rgb.resize(3 * width * height);
  return image;
}

Result<Image> DecodeImage(std::string_view bytes, const DecodeLimits& limits) {
  RETURN_IF_ERROR(CheckFileSize(bytes.size(), limits));
  const Format format = FormatOf(bytes);
  if (format.decode == nullptr) {
    return InvalidArgument("the image is not a JPEG, PNG, WebP or GIF: it starts with {}",
                           Quoted(bytes.substr(0, 12)));
  }
  Result<StoredImage> stored = format.decode(bytes, limits);
  if (!stored.ok()) return stored.status().WithContext(std::string(format.name) + " image");
  if (stored->orientation == 1) return std::move(stored->image);
  return Upright(*stored);
}

}  // namespace tokamak
