// Positioned reads from files, from any number of threads. Files are not mapped: one that shrinks
// must give an error, not SIGBUS.
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
  // Size in bytes when the file was opened.
  uint64_t size() const { return size_; }
  // Reads exactly `size` bytes at `offset`. If the file is too short: kDataLoss, naming the offset.
  Status ReadAt(uint64_t offset, void* destination, size_t size) const;
  // Asks the system to prefetch these bytes into its cache, without waiting. The range may extend
  // past the end.
  void WillNeed(uint64_t offset, uint64_t size) const;

 private:
  friend class Folder;
  File(std::string path, int fd, uint64_t size);
  // Takes a descriptor, or the error of opening it, from errno.
  static Result<File> Of(const std::string& path, int fd);

  std::string path_;
  int fd_ = -1;
  uint64_t size_ = 0;
};

// An open folder, from which nothing leads out. Thread-safe.
class Folder {
 public:
  // kUnimplemented if the system lacks openat2 (Linux before 5.6, or a sandbox that forbids it).
  static Result<Folder> Open(const std::string& path);
  Folder(Folder&& other) noexcept;
  ~Folder();

  // Opens a file below the folder by its relative path, as File::Open does. Neither ".." nor
  // symbolic links lead out of the folder, whatever others rename or link meanwhile: kNotFound.
  Result<File> OpenFile(const std::string& path) const;

 private:
  explicit Folder(int fd) : fd_(fd) {}

  int fd_ = -1;
};

// Returns whether a file or folder of that name exists.
bool FileExists(const std::string& path);

// Returns the whole file; kResourceExhausted if it is longer than `max_bytes`.
Result<std::string> ReadWholeFile(const std::string& path, uint64_t max_bytes);

}  // namespace tokamak
