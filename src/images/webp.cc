#include <webp/decode.h>
#include <webp/demux.h>

#include <cstddef>
#include <memory>

#include "base/error.h"
#include "images/decoders.h"

namespace tokamak {
namespace {

using Demuxer = std::unique_ptr<WebPDemuxer, decltype(&WebPDemuxDelete)>;

std::string_view View(const WebPData& data) {
  return {reinterpret_cast<const char*>(data.bytes), data.size};
}

int Orientation(const WebPDemuxer* demuxer) {
  using std::string_view_literals::operator""sv;
  WebPChunkIterator chunk;
  int orientation = 1;
  if (WebPDemuxGetChunk(demuxer, "EXIF", 1, &chunk) != 0) {
    std::string_view exif = View(chunk.chunk);
    if (exif.starts_with("Exif\0\0"sv)) exif.remove_prefix(6);  // some programs copy it from JPEG
    orientation = ExifOrientation(exif);
  }
  WebPDemuxReleaseChunkIterator(&chunk);
  return orientation;
}

}  // namespace

Result<StoredImage> DecodeWebp(std::string_view bytes, const DecodeLimits& limits) {
  const WebPData data{reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()};
  const Demuxer demuxer(WebPDemux(&data), &WebPDemuxDelete);
  if (demuxer == nullptr) return DataLoss("it is truncated or malformed");
  StoredImage stored;
  ASSIGN_OR_RETURN(stored.image,
                   NewImage(WebPDemuxGetI(demuxer.get(), WEBP_FF_CANVAS_WIDTH),
                            WebPDemuxGetI(demuxer.get(), WEBP_FF_CANVAS_HEIGHT), limits));
  stored.orientation = Orientation(demuxer.get());
  Image& image = stored.image;
  WebPIterator frame;
  const bool found = WebPDemuxGetFrame(demuxer.get(), 1, &frame) != 0;
  // The first frame of an animation may cover a part of the canvas; the rest is black.
  const bool decoded = [&] {
    if (!found || frame.x_offset < 0 || frame.x_offset > image.width - frame.width ||
        frame.y_offset < 0 || frame.y_offset > image.height - frame.height) {
      return false;
    }
    const size_t stride = size_t{3} * image.width;
    const size_t start = (stride * frame.y_offset) + (size_t{3} * frame.x_offset);
    return WebPDecodeRGBInto(frame.fragment.bytes, frame.fragment.size, &image.rgb[start],
                             image.rgb.size() - start, static_cast<int>(stride)) != nullptr;
  }();
  WebPDemuxReleaseIterator(&frame);
  if (!decoded) return DataLoss("its pixels are truncated or malformed");
  return stored;
}

}  // namespace tokamak
