// Random access to the bytes of a file, or of a buffer in tests and fuzzers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "tokamak/status.h"

namespace tokamak {

class ByteSource {
 public:
  virtual ~ByteSource() = default;

  // A path, for messages.
  virtual const std::string& name() const = 0;
  virtual uint64_t size() const = 0;
  // Copies exactly `size` bytes at `offset`; kDataLoss if there are fewer. Thread-safe.
  virtual Status ReadAt(uint64_t offset, void* destination, size_t size) const = 0;
  // ReadAt for bytes that one or more threads read from front to back: also prefetches the bytes
  // after these from the disk.
  virtual Status ReadOn(uint64_t offset, void* destination, size_t size) const {
    return ReadAt(offset, destination, size);
  }
};

// Opens a file for reads by pread: if it shrinks, reads give an error.
Result<std::shared_ptr<const ByteSource>> OpenFileBytes(const std::string& path);

// A copy of `bytes`.
std::shared_ptr<const ByteSource> MakeMemoryBytes(std::string name, std::string bytes);

}  // namespace tokamak
