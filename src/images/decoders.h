// One decoder per format, for decode.cc, and the limits on what they decode.
#pragma once

#include <csetjmp>
#include <cstdint>
#include <string_view>

#include "images/decode.h"

namespace tokamak {

struct StoredImage {
  Image image = {};
  int orientation = 1;  // as EXIF counts, 1 to 8; 1 is upright
};

Result<StoredImage> DecodeJpeg(std::string_view bytes, const DecodeLimits& limits);
Result<StoredImage> DecodePng(std::string_view bytes, const DecodeLimits& limits);
Result<StoredImage> DecodeWebp(std::string_view bytes, const DecodeLimits& limits);
Result<StoredImage> DecodeGif(std::string_view bytes, const DecodeLimits& limits);

// Says whether a file has too many bytes, or none.
Status CheckFileSize(uint64_t bytes, const DecodeLimits& limits);

// Allocates the pixels of an image, black, or says which limit it exceeds.
Result<Image> NewImage(uint64_t width, uint64_t height, const DecodeLimits& limits);

// Reads the orientation from EXIF data, which starts with the byte order ("II" or "MM"). Returns 1
// if there is none or the data is malformed.
int ExifOrientation(std::string_view exif);

// Calls `body`. Returns false if an error handler left it by longjmp(escape): C libraries report
// errors so. `body` must not own anything that has a destructor.
template <typename Body>
bool RunUnlessEscaped(std::jmp_buf& escape, const Body& body) {
  if (setjmp(escape) != 0) return false;
  body();
  return true;
}

}  // namespace tokamak
