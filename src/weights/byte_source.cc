#include "weights/byte_source.h"

#include <atomic>
#include <cstring>

#include "base/error.h"
#include "base/file.h"

namespace tokamak {
namespace {

class FileBytes final : public ByteSource {
 public:
  explicit FileBytes(File file) : file_(std::move(file)) {}
  const std::string& name() const override { return file_.path(); }
  uint64_t size() const override { return file_.size(); }
  Status ReadAt(uint64_t offset, void* destination, size_t size) const override {
    return file_.ReadAt(offset, destination, size);
  }
  Status ReadOn(uint64_t offset, void* destination, size_t size) const override {
    FetchAhead(offset);
    return file_.ReadAt(offset, destination, size);
  }

 private:
  // Keeps the next kAhead to 2 kAhead bytes after `offset` prefetched.
  void FetchAhead(uint64_t offset) const {
    uint64_t asked = asked_.load(std::memory_order_relaxed);
    // After a jump, earlier prefetches are of no use.
    const bool elsewhere = offset > asked || offset + 3 * kAhead < asked;
    const uint64_t begin = elsewhere ? offset : asked;
    if (begin > offset + kAhead) return;
    const uint64_t end = offset + 2 * kAhead;
    // Only one of the threads that get here prefetches.
    if (asked_.compare_exchange_strong(asked, end, std::memory_order_relaxed)) {
      file_.WillNeed(begin, end - begin);
    }
  }

  // By itself the system prefetches little, which leaves the disk idle while weights are packed.
  static constexpr uint64_t kAhead = uint64_t{32} << 20;

  const File file_;
  mutable std::atomic<uint64_t> asked_ = 0;  // bytes before this are prefetched
};

class MemoryBytes final : public ByteSource {
 public:
  MemoryBytes(std::string name, std::string bytes)
      : name_(std::move(name)), bytes_(std::move(bytes)) {}
  const std::string& name() const override { return name_; }
  uint64_t size() const override { return bytes_.size(); }
  Status ReadAt(uint64_t offset, void* destination, size_t size) const override {
    if (offset > bytes_.size() || size > bytes_.size() - offset) {
      return DataLoss("{}: {} bytes at byte {} end past the end of the file ({} bytes)", name_,
                      size, offset, bytes_.size());
    }
    if (size > 0) std::memcpy(destination, bytes_.data() + offset, size);
    return Status();
  }

 private:
  std::string name_, bytes_;
};

}  // namespace

Result<std::shared_ptr<const ByteSource>> OpenFileBytes(const std::string& path) {
  ASSIGN_OR_RETURN(File file, File::Open(path));
  return std::shared_ptr<const ByteSource>(std::make_shared<FileBytes>(std::move(file)));
}

std::shared_ptr<const ByteSource> MakeMemoryBytes(std::string name, std::string bytes) {
  return std::make_shared<MemoryBytes>(std::move(name), std::move(bytes));
}

}  // namespace tokamak
