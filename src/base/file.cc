#include "base/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace tokamak {
namespace {

Status SystemError(const std::string& path, const char* action, int error) {
  if (error == ENOENT) return NotFound("{}: no such file", path);
  return Status(StatusCode::kUnavailable,
                fmt::format("{}: {}: {}", path, action, std::strerror(error)));
}

}  // namespace

File::File(std::string path, int fd, uint64_t size)
    : path_(std::move(path)), fd_(fd), size_(size) {}

File::File(File&& other) noexcept
    : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)), size_(other.size_) {}

File& File::operator=(File&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(fd_, other.fd_);
  std::swap(size_, other.size_);
  return *this;
}

File::~File() {
  if (fd_ >= 0) ::close(fd_);
}

Result<File> File::Open(const std::string& path) {
  // O_NONBLOCK: opening a pipe must not wait for a writer. Regular files ignore it.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return SystemError(path, "cannot open", errno);
  File file(path, fd, 0);
  struct stat info;
  if (::fstat(fd, &info) != 0) return SystemError(path, "cannot stat", errno);
  if (S_ISDIR(info.st_mode)) return InvalidArgument("{}: is a directory, not a file", path);
  if (!S_ISREG(info.st_mode)) return InvalidArgument("{}: is not a regular file", path);
  file.size_ = static_cast<uint64_t>(info.st_size);
  return file;
}

Status File::ReadAt(uint64_t offset, void* destination, size_t size) const {
  auto* out = static_cast<char*>(destination);
  while (size > 0) {
    const ssize_t got = ::pread(fd_, out, size, static_cast<off_t>(offset));
    if (got < 0) {
      if (errno == EINTR) continue;
      return SystemError(path_, "read failed", errno);
    }
    if (got == 0) {
      return DataLoss("{}: the file ends at byte {} and lacks {} bytes; download it again", path_,
                      offset, size);
    }
    out += got;
    offset += static_cast<uint64_t>(got);
    size -= static_cast<size_t>(got);
  }
  return Status();
}

void File::WillNeed(uint64_t offset, uint64_t size) const {
  // Linux prefetches at most the disk's read_ahead_kb (128 by default) per request.
  constexpr uint64_t kPiece = 128 << 10;
  for (const uint64_t end = offset + size; offset < end; offset += kPiece) {
    // Best effort: on failure, reading is only slower.
    (void)::posix_fadvise(fd_, static_cast<off_t>(offset), static_cast<off_t>(kPiece),
                          POSIX_FADV_WILLNEED);
  }
}

bool FileExists(const std::string& path) {
  struct stat info;
  return ::stat(path.c_str(), &info) == 0;
}

Result<std::string> ReadWholeFile(const std::string& path, uint64_t max_bytes) {
  ASSIGN_OR_RETURN(File file, File::Open(path));
  if (file.size() > max_bytes) {
    return ResourceExhausted("{}: has {} bytes, more than the {} allowed", path, file.size(),
                             max_bytes);
  }
  std::string content(file.size(), '\0');
  RETURN_IF_ERROR(file.ReadAt(0, content.data(), content.size()));
  return content;
}

}  // namespace tokamak
