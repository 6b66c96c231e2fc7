// Reading files: positioned reads that many threads may make at once. Nothing is mapped: a file
// that shrinks must give an error, not SIGBUS.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "tokamak/status.h"

namespace tokamak {

// An open file. Thread-safe: ReadAt keeps no position.
class File {
 public:
  static Result<File> Open(const std::string& path);
  File(File&& other) noexcept;
  File& operator=(File&& other) noexcept;
  ~File();

  const std::string& path() const { return path_; }
  // Bytes in the file when it was opened.
  uint64_t size() const { return size_; }
  // Reads exactly `size` bytes at `offset`; a short file is kDataLoss and names the offset.
  Status ReadAt(uint64_t offset, void* destination, size_t size) const;
  // Asks the system to fetch these bytes into its cache, without waiting for them. Bytes past the
  // end do no harm.
  void WillNeed(uint64_t offset, uint64_t size) const;

 private:
  File(std::string path, int fd, uint64_t size);

  std::string path_;
  int fd_ = -1;
  uint64_t size_ = 0;
};

// Whether there is a file or a folder of that name.
bool FileExists(const std::string& path);

// The whole file as a string; kResourceExhausted when it is longer than `max_bytes`.
Result<std::string> ReadWholeFile(const std::string& path, uint64_t max_bytes);

}  // namespace tokamak
