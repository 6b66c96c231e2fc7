#include "weights/byte_source.h"

#include <cstring>

#include "base/error.h"
#include "base/file.h"
#include "weights/read_ahead.h"

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
    // By itself the system prefetches little, which leaves the disk idle while weights are packed.
    const ReadAhead::Range range = ahead_.Next(offset);
    if (!range.empty()) file_.WillNeed(range.begin, range.end - range.begin);
    return file_.ReadAt(offset, destination, size);
  }

 private:
  const File file_;
  mutable ReadAhead ahead_;
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
