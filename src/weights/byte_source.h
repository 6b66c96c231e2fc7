// Random access to the bytes of a file, or of a buffer standing in for one (tests, fuzzing).
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

  // For messages: a path.
  virtual const std::string& name() const = 0;
  virtual uint64_t size() const = 0;
  // Copies exactly `size` bytes at `offset`; kDataLoss when there are fewer. Thread-safe.
  virtual Status ReadAt(uint64_t offset, void* destination, size_t size) const = 0;
  // ReadAt, for bytes that are read from front to back, by one thread or by several: those that
  // follow are fetched from the disk meanwhile.
  virtual Status ReadOn(uint64_t offset, void* destination, size_t size) const {
    return ReadAt(offset, destination, size);
  }
};

// A file, read by pread: a file that shrinks meanwhile gives an error.
Result<std::shared_ptr<const ByteSource>> OpenFileBytes(const std::string& path);

// A copy of `bytes`.
std::shared_ptr<const ByteSource> MakeMemoryBytes(std::string name, std::string bytes);

}  // namespace tokamak
