// Reads the images in tests/golden.
#pragma once

#include <charconv>
#include <string>
#include <string_view>

#include "base/file.h"
#include "images/image.h"

namespace tokamak {

// The text of a PPM file (P6) of 8 bits.
inline std::string ToPpm(const Image& image) {
  return "P6\n" + std::to_string(image.width) + " " + std::to_string(image.height) + "\n255\n" +
         std::string(image.rgb.begin(), image.rgb.end());
}

// Reads a file that ToPpm could have written.
inline Image ReadPpm(const std::string& path) {
  const std::string file = ReadWholeFile(path, 1 << 20).value();
  Image image;
  const char* end = file.data() + file.size();
  const char* at = std::from_chars(file.data() + 3, end, image.width).ptr;
  at = std::from_chars(at + 1, end, image.height).ptr;
  image.rgb.assign(at + 5, end);
  return image;
}

}  // namespace tokamak
