#include "base/file.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
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

// O_NONBLOCK: opening a pipe must not wait for a writer. Regular files ignore it.
constexpr int kReadFlags = O_RDONLY | O_CLOEXEC | O_NONBLOCK;

// Returns a descriptor, or -1 and errno.
int OpenBeneath(int folder, const char* path, int flags) {
  open_how how{};
  how.flags = static_cast<uint64_t>(flags);
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS;
  // EAGAIN: something was renamed meanwhile, so the system could not tell.
  for (int tries = 0;; ++tries) {
    const auto fd = static_cast<int>(::syscall(SYS_openat2, folder, path, &how, sizeof(how)));
    if (fd >= 0 || tries == 100 || (errno != EAGAIN && errno != EINTR)) return fd;
  }
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
  return Of(path, ::open(path.c_str(), kReadFlags));
}

Result<File> File::Of(const std::string& path, int fd) {
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

Result<Folder> Folder::Open(const std::string& path) {
  const int fd = ::open(path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return SystemError(path, "cannot open", errno);
  Folder folder(fd);
  const int itself = OpenBeneath(fd, ".", O_PATH | O_CLOEXEC);
  if (itself >= 0) {
    ::close(itself);
    return folder;
  }
  return Unimplemented(
      "{}: this system cannot keep paths inside a folder (openat2: {}); Linux can from 5.6 on, "
      "unless a sandbox forbids it",
      path, std::strerror(errno));
}

Folder::Folder(Folder&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

Folder::~Folder() {
  if (fd_ >= 0) ::close(fd_);
}

Result<File> Folder::OpenFile(const std::string& path) const {
  const int fd = OpenBeneath(fd_, path.c_str(), kReadFlags);
  // Outside of the folder, absolute, and too many links.
  if (fd < 0 && (errno == EXDEV || errno == ELOOP)) errno = ENOENT;
  return File::Of(path, fd);
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
