// Streams, events, graphs, and memory that frees itself.
#pragma once

#include <cstddef>
#include <memory>

namespace tokamak {

// A queue of work on a device, done in order. On a CPU the work is done when the call returns.
class Stream {
 public:
  virtual ~Stream() = default;
};

// A point in a stream's work. On a CPU it is always reached.
class Event {
 public:
  virtual ~Event() = default;
};

// Recorded work that can be launched again as a whole.
class Graph {
 public:
  virtual ~Graph() = default;
};

// Device or host memory. Copies share the bytes; the last one frees them.
class Buffer {
 public:
  Buffer() = default;
  // `keep` frees the memory when its last reference is gone.
  Buffer(std::shared_ptr<void> keep, size_t size) : keep_(std::move(keep)), size_(size) {}

  std::byte* data() const { return static_cast<std::byte*>(keep_.get()); }
  size_t size() const { return size_; }
  explicit operator bool() const { return keep_ != nullptr; }
  // Bytes [offset, offset + size). Keeps the whole buffer alive.
  Buffer Part(size_t offset, size_t size) const {
    return Buffer(std::shared_ptr<void>(keep_, data() + offset), size);
  }

 private:
  std::shared_ptr<void> keep_;
  size_t size_ = 0;
};

}  // namespace tokamak
