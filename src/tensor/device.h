// Where memory lies, and memory that frees itself.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

namespace tokamak {

enum class DeviceKind { kCpu, kCuda };

struct Device {
  DeviceKind kind = DeviceKind::kCpu;
  int index = 0;
  friend bool operator==(const Device&, const Device&) = default;
};

// The order of work on a device. Work on one stream happens in order; a CPU stream has happened
// when the call returns.
class Stream {
 public:
  virtual ~Stream() = default;
};

// A point in a stream's work. A CPU stream has always reached it.
class Event {
 public:
  virtual ~Event() = default;
};

// Work that was recorded once and can be started again as a whole.
class Graph {
 public:
  virtual ~Graph() = default;
};

// Device or host memory, freed when the last copy goes. Copies share the bytes.
class Buffer {
 public:
  Buffer() = default;
  // `keep` frees the memory when the last reference drops.
  Buffer(std::shared_ptr<void> keep, size_t size) : keep_(std::move(keep)), size_(size) {}

  std::byte* data() const { return static_cast<std::byte*>(keep_.get()); }
  size_t size() const { return size_; }
  explicit operator bool() const { return keep_ != nullptr; }
  // Bytes [offset, offset + size) of it; the whole lives as long as any part.
  Buffer Part(size_t offset, size_t size) const {
    return Buffer(std::shared_ptr<void>(keep_, data() + offset), size);
  }

 private:
  std::shared_ptr<void> keep_;
  size_t size_ = 0;
};

}  // namespace tokamak
