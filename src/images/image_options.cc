#include "images/image_options.h"

#include "base/error.h"

namespace tokamak {
namespace {

// Reads two members of an object that has no others.
void ReadBounds(const JsonReader& object, std::string_view least, std::string_view most,
                std::string_view other, ImageOptions& options) {
  if (!object.is_object()) return object.Bad("an object");
  object.Read(least, options.min_pixels);
  object.Read(most, options.max_pixels);
  for (const auto& [name, value] : *object.value().AsObject()) {
    constexpr size_t kMaxShown = 64;
    if (name == least || name == most || name == other || value.is_null()) continue;
    object.Fail(name.substr(0, kMaxShown),
                fmt::format("is not supported; {} and {} are", least, most));
  }
}

}  // namespace

ImageOptions ReadImageOptions(const JsonReader& fields) {
  ImageOptions options;
  if (!fields.present()) return options;
  if (const JsonReader size = fields["size"]; size.present()) {
    ReadBounds(size, "shortest_edge", "longest_edge", "", options);
  }
  ReadBounds(fields, "min_pixels", "max_pixels", "size", options);
  return options;
}

Status CheckImageOptions(const ImageOptions& options, const ImageOptions& absent,
                         int32_t max_pixels, std::string_view path) {
  if (options.empty()) return Status();
  const std::string field =
      fmt::format("{}.{}", path, options.max_pixels ? "max_pixels" : "min_pixels");
  if (absent.empty()) {
    return InvalidArgument(
        "{}: this model does not scale images to a number of pixels; leave it out", field);
  }
  const int32_t least = options.min_pixels.value_or(*absent.min_pixels);
  const int32_t most = options.max_pixels.value_or(*absent.max_pixels);
  if (least < 1) return InvalidArgument("{}.min_pixels: must be at least 1, got {}", path, least);
  if (most < 1 || most > max_pixels) {
    return InvalidArgument("{}: must be from 1 to {} for this model, got {}", field, max_pixels,
                           most);
  }
  if (least > most) {
    return InvalidArgument("{}: min_pixels is {} and max_pixels only {}; give both", field, least,
                           most);
  }
  return Status();
}

}  // namespace tokamak
