// Decodes images that clients send: JPEG, PNG, WebP and GIF (the first frame of an animation).
//
// The pixels are those that Pillow gives after ImageOps.exif_transpose and convert("RGB"): turned
// upright as EXIF says, alpha dropped, gray, palettes, CMYK and 16 bits converted, color profiles
// ignored. Two things differ: 16-bit gray is scaled (Pillow makes all above 255 white), and corrupt
// data within a JPEG is an error.
#pragma once

#include <cstdint>
#include <string_view>

#include "images/image.h"
#include "tokamak/status.h"

namespace tokamak {

// Checked before memory for pixels is allocated. Decoding takes at most 3 bytes per pixel for the
// result, as many again to turn it upright, and up to 8 within the library.
struct DecodeLimits {
  uint64_t max_bytes = 32 << 20;  // of the file
  int32_t max_side = 16384;       // width and height, in pixels
  int64_t max_pixels = 64'000'000;
};

// Errors: kInvalidArgument for other formats, kDataLoss for files that are truncated or malformed,
// kResourceExhausted for those beyond a limit, kUnimplemented for kinds of JPEG that libjpeg-turbo
// cannot decode. Thread-safe.
Result<Image> DecodeImage(std::string_view bytes, const DecodeLimits& limits = {});

}  // namespace tokamak
