// EXIF is a TIFF file: a header, then a list of tags, of which only the orientation counts here.
#include <cstddef>
#include <cstdint>

#include "images/decoders.h"

namespace tokamak {

int ExifOrientation(std::string_view exif) {
  const bool little = exif.starts_with("II");
  if (!little && !exif.starts_with("MM")) return 1;
  // Reads past the end give 0, which means nothing to any of the fields below.
  const auto number = [&](size_t at, size_t size) {
    uint32_t value = 0;
    for (size_t i = 0; i < size && at + size <= exif.size(); ++i) {
      const auto byte = static_cast<uint8_t>(exif[little ? at + size - 1 - i : at + i]);
      value = value << 8 | byte;
    }
    return value;
  };
  constexpr uint32_t kMagic = 42, kOrientation = 0x0112, kShort = 3, kEntryBytes = 12;
  if (number(2, 2) != kMagic) return 1;
  const size_t directory = number(4, 4);
  const uint32_t entries = number(directory, 2);
  for (uint32_t i = 0; i < entries; ++i) {
    const size_t entry = directory + 2 + (size_t{kEntryBytes} * i);
    if (entry + kEntryBytes > exif.size()) return 1;
    if (number(entry, 2) != kOrientation) continue;
    if (number(entry + 2, 2) != kShort) return 1;
    const uint32_t orientation = number(entry + 8, 2);
    return orientation >= 1 && orientation <= 8 ? static_cast<int>(orientation) : 1;
  }
  return 1;
}

}  // namespace tokamak
