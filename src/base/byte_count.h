#pragma once

#include <cstdint>
#include <string>

namespace tokamak {

// Formats a size for people, in powers of ten: "12.3 KB", "12.3 MB" or "12.34 GB".
std::string ByteCount(int64_t bytes);

}  // namespace tokamak
