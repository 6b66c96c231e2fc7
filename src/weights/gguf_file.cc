// GgufFile: joins the parts of a model and reads their tensors.
#include <fmt/format.h>

#include <limits>

#include "base/check.h"
#include "base/error.h"
#include "base/printable.h"
#include "weights/gguf.h"
#include "weights/gguf_parser.h"

namespace tokamak {
namespace {

// More than any model has; each file costs a descriptor.
constexpr int64_t kMaxParts = 1024;

// A part's statement about the whole model. A file without one is a model of one part.
struct SplitInfo {
  int64_t index = 0;  // counts from 0
  int64_t count = 1;
  int64_t num_tensors = -1;  // in all parts; -1: not stated
};

Result<SplitInfo> ReadSplitInfo(const GgufPart& part) {
  SplitInfo info;
  const GgufMetadata& metadata = part.metadata;
  if (!metadata.Has("split.count")) return info;
  ASSIGN_OR_RETURN(info.count, metadata.Int("split.count"));
  // llama.cpp writes a count of 0 into a merged file.
  if (info.count == 0) return SplitInfo();
  ASSIGN_OR_RETURN(info.index, metadata.Int("split.no"));
  if (metadata.Has("split.tensors.count")) {
    ASSIGN_OR_RETURN(info.num_tensors, metadata.Int("split.tensors.count"));
  }
  if (info.count < 0 || info.count > kMaxParts || info.index < 0 || info.index >= info.count) {
    return DataLoss(
        "{}: metadata \"split.no\" is {} and \"split.count\" {}; expected a part "
        "number below the count, and a count of at most {}",
        part.source->name(), info.index, info.count, kMaxParts);
  }
  return info;
}

std::string SplitSuffix(int64_t index, int64_t count) {
  return fmt::format("-{:05}-of-{:05}.gguf", index + 1, count);
}

// Derives the path of part `index` from that of the first part.
Result<std::string> SiblingPath(const std::string& first_path, int64_t index, int64_t count) {
  const std::string suffix = SplitSuffix(0, count);
  if (!first_path.ends_with(suffix)) {
    return InvalidArgument(
        "{}: is the first of {} files, so its name must end in {}; give the files their original "
        "names again",
        first_path, count, suffix);
  }
  return first_path.substr(0, first_path.size() - suffix.size()) + SplitSuffix(index, count);
}

}  // namespace

Result<std::shared_ptr<const GgufFile>> GgufFile::Open(const std::string& path) {
  auto file = std::make_shared<GgufFile>();
  ASSIGN_OR_RETURN(std::shared_ptr<const ByteSource> source, OpenFileBytes(path));
  RETURN_IF_ERROR(file->AddPart(std::move(source)));
  ASSIGN_OR_RETURN(const SplitInfo info, ReadSplitInfo(file->parts_[0]));
  if (info.index != 0) {
    return InvalidArgument("{}: is part {} of {}; open the first one, *{}", path, info.index + 1,
                           info.count, SplitSuffix(0, info.count));
  }
  for (int64_t i = 1; i < info.count; ++i) {
    ASSIGN_OR_RETURN(const std::string sibling, SiblingPath(path, i, info.count));
    ASSIGN_OR_RETURN(std::shared_ptr<const ByteSource> part, OpenFileBytes(sibling));
    RETURN_IF_ERROR(file->AddPart(std::move(part)));
  }
  RETURN_IF_ERROR(file->CheckSplit());
  RETURN_IF_ERROR(file->IndexTensors());
  return std::shared_ptr<const GgufFile>(std::move(file));
}

Result<std::shared_ptr<const GgufFile>> GgufFile::FromParts(
    std::vector<std::shared_ptr<const ByteSource>> parts) {
  CHECK(!parts.empty());
  auto file = std::make_shared<GgufFile>();
  for (auto& part : parts) RETURN_IF_ERROR(file->AddPart(std::move(part)));
  RETURN_IF_ERROR(file->CheckSplit());
  RETURN_IF_ERROR(file->IndexTensors());
  return std::shared_ptr<const GgufFile>(std::move(file));
}

Status GgufFile::AddPart(std::shared_ptr<const ByteSource> source) {
  GgufParser parser(std::move(source), static_cast<int>(parts_.size()));
  ASSIGN_OR_RETURN(GgufPart part, parser.Parse(&tensors_));
  parts_.push_back(std::move(part));
  return Status();
}

Status GgufFile::CheckSplit() const {
  for (size_t i = 0; i < parts_.size(); ++i) {
    ASSIGN_OR_RETURN(const SplitInfo info, ReadSplitInfo(parts_[i]));
    if (info.index != static_cast<int64_t>(i) ||
        info.count != static_cast<int64_t>(parts_.size())) {
      return DataLoss("{}: says that it is part {} of {}, but it was opened as part {} of {}",
                      parts_[i].source->name(), info.index + 1, info.count, i + 1, parts_.size());
    }
    if (info.num_tensors >= 0 && info.num_tensors != static_cast<int64_t>(tensors_.size())) {
      return DataLoss(
          "{}: metadata \"split.tensors.count\" is {}, but the {} parts have {} tensors",
          parts_[i].source->name(), info.num_tensors, parts_.size(), tensors_.size());
    }
  }
  return Status();
}

Status GgufFile::IndexTensors() {
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const auto [it, inserted] = tensor_index_.emplace(tensors_[i].name, i);
    if (inserted) continue;
    const StoredTensor& first = tensors_[it->second];
    return DataLoss("{}: at byte {}: tensor {} appears twice; the first is at byte {} of {}",
                    parts_[static_cast<size_t>(tensors_[i].part)].source->name(),
                    tensors_[i].offset, Quoted(first.name), first.offset,
                    parts_[static_cast<size_t>(first.part)].source->name());
  }
  return Status();
}

const StoredTensor* GgufFile::FindTensor(std::string_view name) const {
  const auto it = tensor_index_.find(name);
  return it == tensor_index_.end() ? nullptr : &tensors_[it->second];
}

Result<std::shared_ptr<const WeightSource>> GgufFile::Weight(const StoredTensor& tensor) const {
  const GgufPart& part = parts_[static_cast<size_t>(tensor.part)];
  if (!tensor.dtype) {
    return Unimplemented("{}: tensor {} has type {}, which this build cannot read",
                         part.source->name(), Quoted(tensor.name), tensor.type_name);
  }
  return MakeStoredWeight(part.source, tensor);
}

}  // namespace tokamak
