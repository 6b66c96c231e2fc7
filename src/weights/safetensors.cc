#include "weights/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#include "base/check.h"
#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/printable.h"
#include "weights/safetensors_header.h"

namespace tokamak {
namespace {

constexpr const char* kSingleFile = "model.safetensors";
constexpr const char* kIndexFile = "model.safetensors.index.json";
constexpr uint64_t kMaxIndexBytes = uint64_t{64} << 20;
static_assert(std::endian::native == std::endian::little, "values are read as they are stored");

std::string ShapeText(const std::vector<uint64_t>& shape) {
  std::string out = "[";
  for (size_t i = 0; i < shape.size(); ++i) out += fmt::format("{}{}", i > 0 ? ", " : "", shape[i]);
  return out + "]";
}

// Describes the tensor; checks its size against its range, but not its place in the file.
Result<StoredTensor> MakeTensor(const SafetensorsHeader::Entry& entry, const std::string& path) {
  const std::string where = fmt::format("{}: tensor {}", path, Quoted(entry.name));
  const SafetensorsType* type = FindSafetensorsType(entry.dtype);
  if (type == nullptr) {
    return Unimplemented("{} has type {}, which this build does not know", where,
                         Quoted(entry.dtype));
  }
  if (entry.shape.size() > Shape::kMaxRank) {
    return Unimplemented("{} has {} dimensions; at most {} are supported", where,
                         entry.shape.size(), Shape::kMaxRank);
  }
  // Each product stays below 2^62, so sizes and their sums fit in 64 bits.
  constexpr uint64_t kMaxElements = uint64_t{1} << 58;
  uint64_t elements = 1;
  for (const uint64_t dim : entry.shape) {
    if (dim > kMaxElements || (dim != 0 && elements > kMaxElements / dim)) {
      return DataLoss("{} has shape {}, which is too large", where, ShapeText(entry.shape));
    }
    elements *= dim;
  }
  const uint64_t bytes = elements * static_cast<uint64_t>(type->bytes);
  if (entry.begin > entry.end || entry.end - entry.begin != bytes) {
    return DataLoss("{} has data_offsets [{}, {}], but {} of shape {} takes {} bytes", where,
                    entry.begin, entry.end, entry.dtype, ShapeText(entry.shape), bytes);
  }
  if (entry.begin % static_cast<uint64_t>(type->bytes) != 0) {
    return DataLoss("{} begins at byte {} of the data, which is not a multiple of the size of {}",
                    where, entry.begin, entry.dtype);
  }
  StoredTensor tensor;
  tensor.name = entry.name;
  tensor.type_name = entry.dtype;
  tensor.dtype = type->dtype;
  tensor.bytes = bytes;
  const auto dim = [&](size_t i) { return static_cast<int64_t>(entry.shape[i]); };
  switch (entry.shape.size()) {
    case 0:
      tensor.shape = Shape{1};  // a scalar
      break;
    case 1:
      tensor.shape = Shape{dim(0)};
      break;
    case 2:
      tensor.shape = Shape{dim(0), dim(1)};
      break;
    case 3:
      tensor.shape = Shape{dim(0), dim(1), dim(2)};
      break;
    case 4:
      tensor.shape = Shape{dim(0), dim(1), dim(2), dim(3)};
      break;
    default:
      tensor.shape = Shape{dim(0), dim(1), dim(2), dim(3), dim(4)};
  }
  return tensor;
}

}  // namespace

Result<std::shared_ptr<const SafetensorsModel>> SafetensorsModel::OpenDirectory(
    const std::string& folder) {
  std::vector<std::shared_ptr<const ByteSource>> parts;
  const std::string single = folder + "/" + kSingleFile, index_path = folder + "/" + kIndexFile;
  if (FileExists(single)) {
    ASSIGN_OR_RETURN(std::shared_ptr<const ByteSource> file, OpenFileBytes(single));
    parts.push_back(std::move(file));
    return FromParts(std::move(parts));
  }
  if (!FileExists(index_path)) {
    return NotFound("{}: there is neither {} nor {}; weights must be safetensors or GGUF", folder,
                    kSingleFile, kIndexFile);
  }
  ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(index_path, kMaxIndexBytes));
  ASSIGN_OR_RETURN(const SafetensorsIndex index, ParseSafetensorsIndex(text, index_path));
  for (const std::string& name : index.files) {
    Result<std::shared_ptr<const ByteSource>> file = OpenFileBytes(folder + "/" + name);
    if (!file.ok()) return file.status().WithContext(index_path + " names " + name);
    parts.push_back(*std::move(file));
  }
  return FromParts(std::move(parts), index.tensor_files);
}

Result<std::shared_ptr<const SafetensorsModel>> SafetensorsModel::FromParts(
    std::vector<std::shared_ptr<const ByteSource>> parts,
    const std::map<std::string, size_t>& tensor_files) {
  CHECK(!parts.empty());
  auto model = std::make_shared<SafetensorsModel>();
  for (auto& part : parts) RETURN_IF_ERROR(model->AddPart(std::move(part)));
  RETURN_IF_ERROR(model->IndexTensors());
  if (!tensor_files.empty()) RETURN_IF_ERROR(model->CheckPlaces(tensor_files));
  return std::shared_ptr<const SafetensorsModel>(std::move(model));
}

Status SafetensorsModel::AddPart(std::shared_ptr<const ByteSource> source) {
  const std::string& path = source->name();
  uint64_t length = 0;
  if (source->size() < sizeof length) {
    return DataLoss("{}: has {} bytes, too few for a safetensors file", path, source->size());
  }
  RETURN_IF_ERROR(source->ReadAt(0, &length, sizeof length));
  if (length > kMaxHeaderBytes || length > source->size() - sizeof length) {
    return DataLoss(
        "{}: begins with a header size of {} bytes, but the file has {}, and headers have at most "
        "{}. It is not a safetensors file, or its download was cut off.",
        path, length, source->size(), kMaxHeaderBytes);
  }
  std::string json(static_cast<size_t>(length), '\0');
  RETURN_IF_ERROR(source->ReadAt(sizeof length, json.data(), json.size()));
  ASSIGN_OR_RETURN(SafetensorsHeader header, ParseSafetensorsHeader(json, path));

  const uint64_t data = sizeof length + length;
  const uint64_t data_bytes = source->size() - data;
  std::stable_sort(header.entries.begin(), header.entries.end(), [](const auto& a, const auto& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  uint64_t covered = 0;
  for (const SafetensorsHeader::Entry& entry : header.entries) {
    ASSIGN_OR_RETURN(StoredTensor tensor, MakeTensor(entry, path));
    if (entry.begin != covered || entry.end > data_bytes) {
      return DataLoss("{}: tensor {} has data_offsets [{}, {}], which {}", path, Quoted(entry.name),
                      entry.begin, entry.end,
                      entry.end > data_bytes
                          ? fmt::format("exceed the {} bytes of data in the file", data_bytes)
                      : entry.begin < covered
                          ? fmt::format("overlap data up to byte {}", covered)
                          : fmt::format("leave a gap from byte {} on", covered));
    }
    covered = entry.end;
    tensor.part = static_cast<int>(parts_.size());
    tensor.offset = data + entry.begin;
    tensors_.push_back(std::move(tensor));
  }
  if (covered != data_bytes) {
    return DataLoss("{}: has {} bytes of data, but its tensors cover only {}", path, data_bytes,
                    covered);
  }
  parts_.push_back({.source = std::move(source),
                    .header_bytes = length,
                    .header_hash = Hash64(json.data(), json.size(), 0),
                    .num_tensors = header.entries.size(),
                    .metadata = std::move(header.metadata)});
  return Status();
}

Status SafetensorsModel::IndexTensors() {
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const auto [it, fresh] = by_name_.emplace(tensors_[i].name, i);
    if (fresh) continue;
    return DataLoss("tensor {} is in {} and in {}", Quoted(tensors_[i].name),
                    PathOf(tensors_[it->second]), PathOf(tensors_[i]));
  }
  return Status();
}

Status SafetensorsModel::CheckPlaces(const std::map<std::string, size_t>& tensor_files) const {
  for (const auto& [name, part] : tensor_files) {
    const std::string& path = parts_[part].source->name();
    const StoredTensor* tensor = Find(name);
    if (tensor == nullptr) {
      return DataLoss("{}: has no tensor {}, which the index says is there", path, Quoted(name));
    }
    if (static_cast<size_t>(tensor->part) != part) {
      return DataLoss("tensor {} is in {}, but the index says that it is in {}", Quoted(name),
                      PathOf(*tensor), path);
    }
  }
  for (const StoredTensor& tensor : tensors_) {
    if (tensor_files.contains(tensor.name)) continue;
    return DataLoss("{}: tensor {} is not in the index", PathOf(tensor), Quoted(tensor.name));
  }
  return Status();
}

const StoredTensor* SafetensorsModel::Find(std::string_view name) const {
  const auto it = by_name_.find(name);
  return it == by_name_.end() ? nullptr : &tensors_[it->second];
}

const std::string& SafetensorsModel::PathOf(const StoredTensor& tensor) const {
  return parts_[static_cast<size_t>(tensor.part)].source->name();
}

Result<std::shared_ptr<const WeightSource>> SafetensorsModel::Weight(
    const StoredTensor& tensor) const {
  if (!tensor.dtype) {
    return Unimplemented(
        "{}: tensor {} has type {}, which this build cannot compute with; F32, F16 and BF16 are "
        "supported",
        PathOf(tensor), Quoted(tensor.name), tensor.type_name);
  }
  return MakeStoredWeight(parts_[static_cast<size_t>(tensor.part)].source, tensor);
}

}  // namespace tokamak
