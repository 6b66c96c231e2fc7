#include <gif_lib.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <vector>

#include "base/error.h"
#include "images/decoders.h"

namespace tokamak {
namespace {

class GifReader {
 public:
  explicit GifReader(std::string_view bytes) : rest_(bytes) {
    int error = 0;
    gif_ = DGifOpen(this, OnRead, &error);
    if (gif_ == nullptr) error_ = error;
  }
  GifReader(const GifReader&) = delete;
  GifReader& operator=(const GifReader&) = delete;
  ~GifReader() {
    if (gif_ != nullptr) DGifCloseFile(gif_, nullptr);
  }

  // Reads up to the pixels of the first frame.
  Status ReadHeader() {
    if (gif_ == nullptr) return Error();
    for (;;) {
      GifRecordType type = UNDEFINED_RECORD_TYPE;
      if (DGifGetRecordType(gif_, &type) == GIF_ERROR) return Error();
      if (type == IMAGE_DESC_RECORD_TYPE) {
        return DGifGetImageDesc(gif_) == GIF_ERROR ? Error() : Status();
      }
      if (type == TERMINATE_RECORD_TYPE) return DataLoss("it has no frame");
      if (type == EXTENSION_RECORD_TYPE) RETURN_IF_ERROR(ReadExtension());
    }
  }

  const GifFileType& gif() const { return *gif_; }

  // A frame may cover a part of the canvas. Pillow gives the rest the transparent color, else the
  // first one.
  Status ReadPixels(Image& image) {
    const std::array<GifColorType, 256> palette = Palette();
    const GifColorType& outside = palette[transparent_];
    for (size_t i = 0; i < image.rgb.size(); i += 3) Set(outside, &image.rgb[i]);
    const GifImageDesc& frame = gif_->Image;
    std::vector<GifPixelType> row(frame.Width);
    constexpr int kStarts[] = {0, 4, 2, 1}, kSteps[] = {8, 8, 4, 2};
    for (int pass = frame.Interlace ? 0 : 3; pass < 4; ++pass) {
      const int start = frame.Interlace ? kStarts[pass] : 0;
      for (int y = start; y < frame.Height; y += frame.Interlace ? kSteps[pass] : 1) {
        if (DGifGetLine(gif_, row.data(), frame.Width) == GIF_ERROR) return Error();
        uint8_t* out = &image.rgb[3 * ((size_t{1} * image.width * (frame.Top + y)) + frame.Left)];
        for (const GifPixelType pixel : row) out = Set(palette[pixel], out);
      }
    }
    return {};
  }

 private:
  static int OnRead(GifFileType* gif, GifByteType* out, int size) {
    std::string_view& rest = static_cast<GifReader*>(gif->UserData)->rest_;
    const size_t taken = std::min(rest.size(), static_cast<size_t>(size));
    std::copy_n(rest.data(), taken, out);
    rest.remove_prefix(taken);
    return static_cast<int>(taken);
  }
  static uint8_t* Set(const GifColorType& color, uint8_t* out) {
    *out++ = color.Red;
    *out++ = color.Green;
    *out++ = color.Blue;
    return out;
  }

  Status ReadExtension() {
    int code = 0;
    GifByteType* block = nullptr;
    if (DGifGetExtension(gif_, &code, &block) == GIF_ERROR) return Error();
    while (block != nullptr) {
      GraphicsControlBlock control;
      if (code == GRAPHICS_EXT_FUNC_CODE &&
          DGifExtensionToGCB(block[0], block + 1, &control) == GIF_OK) {
        transparent_ = std::max(control.TransparentColor, 0);
      }
      if (DGifGetExtensionNext(gif_, &block) == GIF_ERROR) return Error();
    }
    return {};
  }

  // Colors that the file does not define are gray.
  std::array<GifColorType, 256> Palette() const {
    std::array<GifColorType, 256> palette;
    for (size_t i = 0; i < palette.size(); ++i) {
      const auto gray = static_cast<GifByteType>(i);
      palette[i] = {gray, gray, gray};
    }
    const ColorMapObject* map =
        gif_->Image.ColorMap != nullptr ? gif_->Image.ColorMap : gif_->SColorMap;
    if (map != nullptr) {
      std::copy_n(map->Colors, std::min(map->ColorCount, 256), palette.begin());
    }
    return palette;
  }

  Status Error() const {
    const int code = gif_ != nullptr ? gif_->Error : error_;
    if (code == D_GIF_ERR_READ_FAILED) return DataLoss("the file ends too early");
    const char* message = GifErrorString(code);
    return DataLoss("{}", message != nullptr ? message : "it is malformed");
  }

  std::string_view rest_;
  GifFileType* gif_ = nullptr;
  int error_ = 0;
  int transparent_ = 0;  // index of a color
};

}  // namespace

Result<StoredImage> DecodeGif(std::string_view bytes, const DecodeLimits& limits) {
  GifReader reader(bytes);
  RETURN_IF_ERROR(reader.ReadHeader());
  const GifImageDesc& frame = reader.gif().Image;
  if (frame.Width <= 0 || frame.Height <= 0 || frame.Left < 0 || frame.Top < 0) {
    return DataLoss("its first frame is {} x {} pixels", frame.Width, frame.Height);
  }
  StoredImage stored;
  ASSIGN_OR_RETURN(stored.image,
                   NewImage(std::max(reader.gif().SWidth, frame.Left + frame.Width),
                            std::max(reader.gif().SHeight, frame.Top + frame.Height), limits));
  RETURN_IF_ERROR(reader.ReadPixels(stored.image));
  return stored;
}

}  // namespace tokamak
