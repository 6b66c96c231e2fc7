// Memory that processes share, by the name of a file.
#pragma once

#include <cstddef>
#include <string>

#include "tensor/device.h"
#include "tokamak/status.h"

namespace tokamak {

// Makes a file of zeros that only this user may use. kResourceExhausted if there is no room for it.
Status CreateSharedMemory(const std::string& path, size_t bytes);
// Maps the file, which may be removed afterwards. kDataLoss if it has another size.
Result<Buffer> MapSharedMemory(const std::string& path, size_t bytes);

}  // namespace tokamak
