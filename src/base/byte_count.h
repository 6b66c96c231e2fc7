#pragma once

#include <cstdint>
#include <string>

namespace tokamak {

// For people: "12.3 KB", "12.3 MB" or "12.34 GB", in powers of ten.
std::string ByteCount(int64_t bytes);

}  // namespace tokamak
