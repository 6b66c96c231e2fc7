#include "ops/host/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace tokamak {

Status CreateSharedMemory(const std::string& path, size_t bytes) {
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0) return Unavailable("{}: {}", path, std::strerror(errno));
  // Takes the memory now: a process that uses what is not there would be killed.
  const int error = ::posix_fallocate(fd, 0, static_cast<off_t>(bytes));
  ::close(fd);
  if (error == 0) return Status();
  return ResourceExhausted("{}: {} bytes for the ranks to exchange values: {}", path, bytes,
                           std::strerror(error));
}

Result<Buffer> MapSharedMemory(const std::string& path, size_t bytes) {
  const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) return Unavailable("{}: {}", path, std::strerror(errno));
  struct stat info {};
  const bool fits = ::fstat(fd, &info) == 0 && static_cast<size_t>(info.st_size) == bytes;
  void* const memory =
      fits ? ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) : MAP_FAILED;
  const int error = errno;
  ::close(fd);
  if (!fits) {
    return DataLoss("{}: has {} bytes, but the ranks exchange values through {}", path,
                    info.st_size, bytes);
  }
  if (memory == MAP_FAILED) return ResourceExhausted("{}: {}", path, std::strerror(error));
  return Buffer(std::shared_ptr<void>(memory, [bytes](void* data) { ::munmap(data, bytes); }),
                bytes);
}

}  // namespace tokamak
