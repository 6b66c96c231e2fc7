#include "local/worker_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "base/error.h"
#include "ops/host/shared_memory.h"
#include "rpc/endpoint.h"

namespace tokamak {
namespace {

std::string MemoryPath(const std::string& folder) { return folder + "/memory"; }

// Refuses a folder that others may enter: writing to the memory changes what the ranks compute.
Status CheckPrivate(const std::string& folder) {
  struct stat info {};
  if (::stat(folder.c_str(), &info) != 0) {
    return Unavailable("{}: {}", folder, std::strerror(errno));
  }
  if (!S_ISDIR(info.st_mode)) return Unavailable("{}: is not a folder", folder);
  if (info.st_uid != ::geteuid()) return Unavailable("{}: belongs to another user", folder);
  if ((info.st_mode & 077) == 0) return Status();
  return Unavailable("{}: others may enter this folder; chmod 700 it", folder);
}

}  // namespace

Result<std::unique_ptr<WorkerFolder>> WorkerFolder::Make(const EngineOptions& options) {
  const std::string& address = options.worker_address;
  if (!address.empty()) {
    return Use(SocketFolder(address).value_or(options.worker_folder), address);
  }
  std::string error;
  for (const char* parent : {"/dev/shm", "/tmp"}) {  // files in /dev/shm are memory
    std::string path = fmt::format("{}/tokamak-XXXXXX", parent);
    if (::mkdtemp(path.data()) != nullptr) {
      return std::unique_ptr<WorkerFolder>(
          new WorkerFolder(path, fmt::format("unix:{}/socket", path), -1));
    }
    error = fmt::format("{}: {}", path, std::strerror(errno));
  }
  return Unavailable("no folder for the workers' socket: {}", error);
}

Result<std::unique_ptr<WorkerFolder>> WorkerFolder::Use(const std::string& path,
                                                        const std::string& address) {
  int lock = -1;
  if (!path.empty()) {
    if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
      return Unavailable("{}: {}", path, std::strerror(errno));
    }
    RETURN_IF_ERROR(CheckPrivate(path));
    lock = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (lock < 0) return Unavailable("{}: {}", path, std::strerror(errno));
    if (::flock(lock, LOCK_EX | LOCK_NB) != 0) {
      ::close(lock);
      return Unavailable("{}: another driver uses this folder", path);
    }
  }
  return std::unique_ptr<WorkerFolder>(new WorkerFolder(path, address, lock));
}

WorkerFolder::~WorkerFolder() {
  Close();
  if (lock_ >= 0) ::close(lock_);
}

Status WorkerFolder::CreateMemory(size_t bytes) {
  ::unlink(MemoryPath(path_).c_str());
  return CreateSharedMemory(MemoryPath(path_), bytes);
}

void WorkerFolder::Close() {
  if (path_.empty()) return;
  ::unlink(MemoryPath(path_).c_str());
  if (lock_ >= 0) return;
  ::unlink(fmt::format("{}/socket", path_).c_str());
  ::rmdir(path_.c_str());
}

Result<Buffer> WorkerFolder::MapMemory(const std::string& folder, size_t bytes) {
  RETURN_IF_ERROR(CheckPrivate(folder));
  return MapSharedMemory(MemoryPath(folder), bytes);
}

}  // namespace tokamak
