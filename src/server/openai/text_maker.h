// Making the long texts of answers where no stream waits for it.
#pragma once

#include <cstddef>
#include <functional>
#include <string>

namespace tokamak {

// Texts up to about this many bytes are made on the I/O thread, in less than a millisecond; during
// longer ones every stream would stand still.
inline constexpr size_t kShortText = 64 << 10;

// Runs `make` on another thread, and calls `then` with what it returns on the I/O thread later, or
// never when the server ends before. `bytes`: about how much that is. I/O thread.
using TextMaker = std::function<void(size_t bytes, std::function<std::string()> make,
                                     std::function<void(std::string text)> then)>;

}  // namespace tokamak
