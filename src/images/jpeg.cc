#include <cstddef>
#include <cstdio>  // jpeglib.h needs it
#include <string_view>
#include <vector>

#include <jpeglib.h>
// Messages' codes; needs jpeglib.h.
#include <jerror.h>

#include "base/error.h"
#include "images/decoders.h"

namespace tokamak {
namespace {

// A progressive JPEG has about ten. Each scan visits all pixels, so a small file could keep a core
// busy for minutes.
constexpr int kMaxScans = 100;

class JpegReader {
 public:
  explicit JpegReader(std::string_view bytes) {
    info_.err = jpeg_std_error(&errors_);
    errors_.error_exit = OnError;
    errors_.emit_message = OnMessage;
    info_.client_data = this;
    created_ = RunUnlessEscaped(escape_, [&] {
      jpeg_create_decompress(&info_);
      info_.progress = &progress_;
      jpeg_mem_src(&info_, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
      jpeg_save_markers(&info_, kExifMarker, 0xffff);
    });
    progress_.progress_monitor = OnProgress;
  }
  JpegReader(const JpegReader&) = delete;
  JpegReader& operator=(const JpegReader&) = delete;
  ~JpegReader() { jpeg_destroy_decompress(&info_); }

  // Reads everything before the pixels.
  bool ReadHeader() {
    return created_ && RunUnlessEscaped(escape_, [&] {
             jpeg_read_header(&info_, TRUE);
             info_.out_color_space = info_.num_components == 4 ? JCS_CMYK : JCS_RGB;
           });
  }

  // `rgb`: [height, width, 3]. `row`: room for a row of CMYK.
  bool ReadPixels(uint8_t* rgb, uint8_t* row) {
    return RunUnlessEscaped(escape_, [&] {
      jpeg_start_decompress(&info_);
      const bool cmyk = info_.out_color_space == JCS_CMYK;
      while (info_.output_scanline < info_.output_height) {
        uint8_t* out = rgb + (size_t{3} * info_.output_width * info_.output_scanline);
        JSAMPROW target = cmyk ? row : out;
        jpeg_read_scanlines(&info_, &target, 1);
        if (cmyk) ConvertInverted(row, out);
      }
    });
  }

  const jpeg_decompress_struct& info() const { return info_; }
  Status error() const {
    const int code = errors_.msg_code;
    const bool unsupported = code == JERR_BAD_PRECISION || code == JERR_SOF_UNSUPPORTED ||
                             code == JERR_CONVERSION_NOTIMPL;
    return {unsupported ? StatusCode::kUnimplemented : StatusCode::kDataLoss, message_};
  }

  int orientation() const {
    using std::string_view_literals::operator""sv;
    for (const jpeg_marker_struct* marker = info_.marker_list; marker != nullptr;
         marker = marker->next) {
      const std::string_view data(reinterpret_cast<const char*>(marker->data), marker->data_length);
      if (marker->marker == kExifMarker && data.starts_with("Exif\0\0"sv)) {
        return ExifOrientation(data.substr(6));
      }
    }
    return 1;
  }

 private:
  static constexpr int kExifMarker = JPEG_APP0 + 1;

  [[noreturn]] static void OnError(j_common_ptr info) {
    auto* reader = static_cast<JpegReader*>(info->client_data);
    info->err->format_message(info, reader->message_);
    std::longjmp(reader->escape_, 1);
  }
  // The library would go on after these with pixels that it made up.
  static void OnMessage(j_common_ptr info, int level) {
    const int code = info->err->msg_code;
    if (level < 0 && (code == JWRN_JPEG_EOF || code == JWRN_HIT_MARKER ||
                      code == JWRN_HUFF_BAD_CODE || code == JWRN_MUST_RESYNC)) {
      OnError(info);
    }
  }
  static void OnProgress(j_common_ptr info) {
    if (reinterpret_cast<j_decompress_ptr>(info)->input_scan_number <= kMaxScans) return;
    auto* reader = static_cast<JpegReader*>(info->client_data);
    std::snprintf(reader->message_, sizeof(reader->message_), "it has more than %d scans",
                  kMaxScans);
    std::longjmp(reader->escape_, 1);
  }

  // Adobe's programs store CMYK inverted, and others do so because of them.
  void ConvertInverted(const uint8_t* cmyk, uint8_t* rgb) const {
    for (JDIMENSION x = 0; x < info_.output_width; ++x, cmyk += 4) {
      for (int channel = 0; channel < 3; ++channel) {
        const int ink = 255 - cmyk[channel], white = cmyk[3];
        const int scaled = (ink * white) + 128;
        *rgb++ = static_cast<uint8_t>(white - ((scaled + (scaled >> 8)) >> 8));
      }
    }
  }

  jpeg_decompress_struct info_ = {};
  jpeg_error_mgr errors_ = {};
  jpeg_progress_mgr progress_ = {};
  std::jmp_buf escape_;
  char message_[JMSG_LENGTH_MAX] = {};
  bool created_ = false;
};

}  // namespace

Result<StoredImage> DecodeJpeg(std::string_view bytes, const DecodeLimits& limits) {
  JpegReader reader(bytes);
  if (!reader.ReadHeader()) return reader.error();
  const jpeg_decompress_struct& info = reader.info();
  StoredImage stored;
  ASSIGN_OR_RETURN(stored.image, NewImage(info.image_width, info.image_height, limits));
  stored.orientation = reader.orientation();
  std::vector<uint8_t> row(info.num_components == 4 ? size_t{4} * info.image_width : 0);
  if (!reader.ReadPixels(stored.image.rgb.data(), row.data())) return reader.error();
  return stored;
}

}  // namespace tokamak
