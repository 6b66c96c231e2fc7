#include <png.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>

#include "base/error.h"
#include "images/decoders.h"

namespace tokamak {
namespace {

class PngReader {
 public:
  explicit PngReader(std::string_view bytes) : rest_(bytes) {}
  PngReader(const PngReader&) = delete;
  PngReader& operator=(const PngReader&) = delete;
  ~PngReader() { png_destroy_read_struct(&png_, &info_, nullptr); }

  // Reads everything before the pixels.
  bool ReadHeader() {
    return RunUnlessEscaped(escape_, [&] {
      png_ = png_create_read_struct(PNG_LIBPNG_VER_STRING, this, OnError, OnWarning);
      if (png_ == nullptr) OnError(nullptr, "no memory", this);
      info_ = png_create_info_struct(png_);
      if (info_ == nullptr) OnError(nullptr, "no memory", this);
      png_set_read_fn(png_, this, OnRead);
      // NewImage checks the size, with a better message.
      png_set_user_limits(png_, PNG_UINT_31_MAX, PNG_UINT_31_MAX);
      // No chunk besides palette, transparency and EXIF counts; others need not be unpacked.
      png_set_keep_unknown_chunks(png_, PNG_HANDLE_CHUNK_NEVER, nullptr, -1);
      png_set_keep_unknown_chunks(png_, PNG_HANDLE_CHUNK_AS_DEFAULT,
                                  reinterpret_cast<const png_byte*>("eXIf"), 1);
      png_read_info(png_, info_);
    });
  }

  uint32_t width() const { return png_get_image_width(png_, info_); }
  uint32_t height() const { return png_get_image_height(png_, info_); }

  // `rgb`: [height, width, 3].
  bool ReadPixels(uint8_t* rgb) {
    return RunUnlessEscaped(escape_, [&] {
      const int color = png_get_color_type(png_, info_);
      if (png_get_bit_depth(png_, info_) == 16) png_set_strip_16(png_);
      if (color == PNG_COLOR_TYPE_PALETTE) png_set_palette_to_rgb(png_);
      if (color == PNG_COLOR_TYPE_GRAY) png_set_expand_gray_1_2_4_to_8(png_);
      if ((color & PNG_COLOR_MASK_COLOR) == 0) png_set_gray_to_rgb(png_);
      png_set_strip_alpha(png_);
      const int passes = png_set_interlace_handling(png_);
      png_read_update_info(png_, info_);
      const size_t stride = size_t{3} * width();
      if (png_get_rowbytes(png_, info_) != stride) OnError(png_, "unexpected layout of rows");
      for (int pass = 0; pass < passes; ++pass) {
        for (uint32_t y = 0; y < height(); ++y) png_read_row(png_, rgb + (stride * y), nullptr);
      }
      png_read_end(png_, info_);  // EXIF may come after the pixels
    });
  }

  int orientation() {
    png_byte* exif = nullptr;
    png_uint_32 size = 0;
    if (png_get_eXIf_1(png_, info_, &size, &exif) == 0) return 1;
    return ExifOrientation({reinterpret_cast<const char*>(exif), size});
  }
  Status error() const { return DataLoss("{}", message_); }

 private:
  [[noreturn]] static void OnError(png_structp png, const char* message) {
    OnError(png, message, static_cast<PngReader*>(png_get_error_ptr(png)));
  }
  [[noreturn]] static void OnError(png_structp, const char* message, PngReader* reader) {
    std::snprintf(reader->message_, sizeof(reader->message_), "%s", message);
    std::longjmp(reader->escape_, 1);
  }
  static void OnWarning(png_structp, const char*) {}
  static void OnRead(png_structp png, png_byte* out, size_t size) {
    auto* reader = static_cast<PngReader*>(png_get_io_ptr(png));
    if (size > reader->rest_.size()) OnError(png, "the file ends too early");
    std::copy_n(reader->rest_.data(), size, out);
    reader->rest_.remove_prefix(size);
  }

  std::string_view rest_;
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
  std::jmp_buf escape_;
  char message_[200] = {};
};

}  // namespace

Result<StoredImage> DecodePng(std::string_view bytes, const DecodeLimits& limits) {
  PngReader reader(bytes);
  if (!reader.ReadHeader()) return reader.error();
  StoredImage stored;
  ASSIGN_OR_RETURN(stored.image, NewImage(reader.width(), reader.height(), limits));
  if (!reader.ReadPixels(stored.image.rgb.data())) return reader.error();
  stored.orientation = reader.orientation();
  return stored;
}

}  // namespace tokamak
