#include "weights/gguf_parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/error.h"
#include "base/printable.h"

static_assert(std::endian::native == std::endian::little, "GGUF files are read as little-endian");

namespace tokamak {
namespace {

constexpr uint32_t kMagic = 0x46554747;  // "GGUF"
constexpr uint32_t kDefaultAlignment = 32;
// Far beyond any real file (the largest vocabularies take 30 MB), so that a corrupt length in a
// huge file fails before memory is allocated.
constexpr uint64_t kMaxMetadataBytes = uint64_t{256} << 20;
// Limits on counts, because in memory an item takes several times its bytes in the file.
constexpr uint64_t kMaxEntries = 65536;
constexpr uint64_t kMaxTensors = uint64_t{1} << 20;
constexpr uint64_t kMaxNestedArrays = uint64_t{1} << 20;
constexpr uint64_t kFirstRead = uint64_t{1} << 20;
constexpr uint64_t kMaxNameBytes = 65535;
constexpr int kMaxArrayDepth = 4;
// Minimum size in a file: length, type and value; length, rank, type and offset; type and count.
constexpr uint64_t kMinEntryBytes = 8 + 4 + 1;
constexpr uint64_t kMinTensorBytes = 8 + 4 + 4 + 8;
constexpr uint64_t kMinArrayBytes = 4 + 8;

}  // namespace

GgufParser::GgufParser(std::shared_ptr<const ByteSource> source, int part_index)
    : source_(std::move(source)),
      storage_(std::make_shared<GgufStorage>()),
      part_index_(part_index) {}

Result<GgufPart> GgufParser::Parse(std::vector<StoredTensor>* tensors) {
  part_.metadata.file_ = source_->name();
  uint64_t num_tensors = 0, num_entries = 0;
  RETURN_IF_ERROR(ParseHeader(&num_tensors, &num_entries));
  for (uint64_t i = 0; i < num_entries; ++i) RETURN_IF_ERROR(ParseEntry(i));
  RETURN_IF_ERROR(ParseAlignment());

  // Counts from the file reserve nothing: memory grows only with bytes that are really there.
  const size_t first = tensors->size();
  for (uint64_t i = 0; i < num_tensors; ++i) {
    StoredTensor tensor;
    tensor.part = part_index_;
    RETURN_IF_ERROR(ParseTensor(i, &tensor));
    tensors->push_back(std::move(tensor));
  }
  RETURN_IF_ERROR(PlaceTensors(tensors, first));

  storage_->bytes.resize(position_);
  storage_->bytes.shrink_to_fit();
  part_.source = source_;
  part_.num_tensors = num_tensors;
  part_.storage = storage_;
  return std::move(part_);
}

Status GgufParser::ParseHeader(uint64_t* num_tensors, uint64_t* num_entries) {
  field_ = "header";
  uint32_t magic = 0;
  RETURN_IF_ERROR(Read("magic", &magic));
  if (magic != kMagic) {
    return Malformed("magic",
                     fmt::format("{:08x} is not the magic number of a GGUF file, \"GGUF\"", magic));
  }
  RETURN_IF_ERROR(Read("version", &part_.version));
  if (part_.version != 0 && (part_.version & 0xffff) == 0) {
    return Error(StatusCode::kUnimplemented, "version",
                 "the file is big-endian; convert it to little-endian "
                 "(gguf-py's gguf_convert_endian.py)");
  }
  if (part_.version != 2 && part_.version != 3) {
    return Error(StatusCode::kUnimplemented, "version",
                 fmt::format("{}; only versions 2 and 3 are supported", part_.version));
  }
  RETURN_IF_ERROR(Read("tensor count", num_tensors));
  RETURN_IF_ERROR(CheckCount(*num_tensors, kMinTensorBytes, "tensor count"));
  if (*num_tensors > kMaxTensors) {
    return Malformed("tensor count",
                     fmt::format("{}; at most {} are supported", *num_tensors, kMaxTensors));
  }
  RETURN_IF_ERROR(Read("metadata count", num_entries));
  RETURN_IF_ERROR(CheckCount(*num_entries, kMinEntryBytes, "metadata count"));
  if (*num_entries > kMaxEntries) {
    return Malformed("metadata count",
                     fmt::format("{}; at most {} are supported", *num_entries, kMaxEntries));
  }
  return Status();
}

Status GgufParser::ParseEntry(uint64_t index) {
  field_ = fmt::format("metadata {}", index);
  uint64_t key_size = 0;
  RETURN_IF_ERROR(ReadString("key", &key_size));
  if (key_size == 0 || key_size > kMaxNameBytes) {
    return Malformed("key",
                     fmt::format("is {} bytes long; 1 to {} are allowed", key_size, kMaxNameBytes));
  }
  GgufMetadata& metadata = part_.metadata;
  std::string key = Text(position_ - key_size, key_size);
  field_ = fmt::format("metadata {} {}", index, Quoted(key));
  if (!metadata.index_.emplace(key, metadata.entries_.size()).second) {
    return Malformed("key", "appears twice");
  }
  GgufType type;
  RETURN_IF_ERROR(ReadType("value type", &type));
  GgufValue value;
  RETURN_IF_ERROR(ParseValue(type, 0, &value));
  metadata.entries_.push_back({std::move(key), value});
  return Status();
}

Status GgufParser::ParseValue(GgufType type, int depth, GgufValue* value) {
  value->storage_ = storage_.get();
  value->type_ = type;
  if (type == GgufType::kArray) return ParseArray(depth, value);
  if (type == GgufType::kString) {
    RETURN_IF_ERROR(ReadString("value", &value->size_));
    value->offset_ = position_ - value->size_;
    return Status();
  }
  const uint64_t size = ScalarBytes(type);
  RETURN_IF_ERROR(Need(size, "value"));
  value->offset_ = position_;
  position_ += size;
  if (type == GgufType::kBool && static_cast<uint8_t>(storage_->bytes[value->offset_]) > 1) {
    return Malformed("value", "a bool must be 0 or 1");
  }
  return Status();
}

Status GgufParser::ParseArray(int depth, GgufValue* value) {
  if (depth == kMaxArrayDepth) {
    return Malformed("array",
                     fmt::format("arrays are nested more than {} levels deep", kMaxArrayDepth));
  }
  RETURN_IF_ERROR(ReadType("array element type", &value->element_type_));
  RETURN_IF_ERROR(Read("array length", &value->size_));
  value->offset_ = position_;
  const uint64_t count = value->size_;

  if (value->element_type_ == GgufType::kString) {
    RETURN_IF_ERROR(CheckCount(count, sizeof(uint64_t), "array length"));
    value->first_ = storage_->strings.size();
    for (uint64_t i = 0; i < count; ++i) {
      storage_->strings.push_back(position_);
      uint64_t size = 0;
      RETURN_IF_ERROR(ReadString("array element", &size));
    }
    return Status();
  }
  if (value->element_type_ == GgufType::kArray) {
    RETURN_IF_ERROR(CheckCount(count, kMinArrayBytes, "array length"));
    std::vector<GgufValue> elements;  // nested elements go into the storage first
    for (uint64_t i = 0; i < count; ++i) {
      if (++num_nested_arrays_ > kMaxNestedArrays) {
        return Malformed("array length", fmt::format("more than {} arrays of arrays in one file",
                                                     kMaxNestedArrays));
      }
      GgufValue element;
      RETURN_IF_ERROR(ParseValue(GgufType::kArray, depth + 1, &element));
      elements.push_back(element);
    }
    std::vector<GgufValue>& arrays = storage_->arrays;
    value->first_ = arrays.size();
    arrays.insert(arrays.end(), elements.begin(), elements.end());
    return Status();
  }
  const uint64_t element_bytes = ScalarBytes(value->element_type_);
  RETURN_IF_ERROR(CheckCount(count, element_bytes, "array length"));
  RETURN_IF_ERROR(Need(count * element_bytes, "array elements"));
  if (value->element_type_ == GgufType::kBool) {
    const std::byte* begin = storage_->bytes.data() + position_;
    if (std::any_of(begin, begin + count, [](std::byte b) { return b > std::byte{1}; })) {
      return Malformed("array elements", "a bool must be 0 or 1");
    }
  }
  position_ += count * element_bytes;
  return Status();
}

Status GgufParser::ParseAlignment() {
  part_.alignment = kDefaultAlignment;
  const GgufValue* value = part_.metadata.Find("general.alignment");
  if (value == nullptr) return Status();
  field_ = "metadata \"general.alignment\"";
  last_ = value->offset_;
  const std::optional<uint64_t> alignment = value->Uint();
  if (!alignment || *alignment > (uint64_t{1} << 30) || !std::has_single_bit(*alignment)) {
    return Malformed("value", "must be an integer that is a power of two up to 2^30");
  }
  part_.alignment = static_cast<uint32_t>(*alignment);
  return Status();
}

Status GgufParser::ParseTensor(uint64_t index, StoredTensor* tensor) {
  field_ = fmt::format("tensor {}", index);
  uint64_t name_size = 0;
  RETURN_IF_ERROR(ReadString("name", &name_size));
  if (name_size == 0 || name_size > kMaxNameBytes) {
    return Malformed(
        "name", fmt::format("is {} bytes long; 1 to {} are allowed", name_size, kMaxNameBytes));
  }
  tensor->name = Text(position_ - name_size, name_size);
  field_ = fmt::format("tensor {} {}", index, Quoted(tensor->name));
  RETURN_IF_ERROR(ParseShape(tensor));

  uint32_t id = 0;
  RETURN_IF_ERROR(Read("type", &id));
  const GgufTensorType* type = FindGgufTensorType(id);
  tensor->type_name = type ? type->name : fmt::format("type {}", id);
  if (type != nullptr && type->block_bytes > 0) {
    if (tensor->shape.cols() % type->block_elements != 0) {
      return Malformed(
          "type", fmt::format("{} packs {} elements into a block, which does not divide rows of {}",
                              type->name, type->block_elements, tensor->shape.cols()));
    }
    const auto blocks = static_cast<uint64_t>(tensor->shape.elements() / type->block_elements);
    const auto block_bytes = static_cast<uint64_t>(type->block_bytes);
    if (blocks > source_->size() / block_bytes) {
      return Malformed("shape", fmt::format("{} of {} is larger than the whole file ({} bytes)",
                                            tensor->shape.ToString(), type->name, source_->size()));
    }
    tensor->dtype = type->dtype;
    tensor->bytes = blocks * block_bytes;
  }
  RETURN_IF_ERROR(Read("offset", &tensor->offset));
  if (tensor->offset % part_.alignment != 0) {
    return Malformed("offset", fmt::format("{} is not a multiple of the alignment {}",
                                           tensor->offset, part_.alignment));
  }
  return Status();
}

Status GgufParser::ParseShape(StoredTensor* tensor) {
  constexpr uint32_t kMaxRank = 4;  // the format's
  uint32_t rank = 0;
  RETURN_IF_ERROR(Read("number of dimensions", &rank));
  if (rank > kMaxRank) {
    return Malformed("number of dimensions",
                     fmt::format("{}; at most {} are supported", rank, kMaxRank));
  }
  int64_t dims[kMaxRank] = {1, 1, 1, 1};  // innermost first, as stored
  int64_t elements = 1;
  for (uint32_t i = 0; i < rank; ++i) {
    uint64_t dim = 0;
    RETURN_IF_ERROR(Read("dimension", &dim));
    if (dim == 0 || dim > static_cast<uint64_t>(INT64_MAX) ||
        __builtin_mul_overflow(elements, static_cast<int64_t>(dim), &elements)) {
      return Malformed("dimension",
                       fmt::format("dimension {} is {}: the tensor would have {} elements", i, dim,
                                   dim == 0 ? "no" : "more than 2^63"));
    }
    dims[i] = static_cast<int64_t>(dim);
  }
  switch (rank) {
    case 0:
    case 1:
      tensor->shape = Shape{dims[0]};
      break;
    case 2:
      tensor->shape = Shape{dims[1], dims[0]};
      break;
    case 3:
      tensor->shape = Shape{dims[2], dims[1], dims[0]};
      break;
    default:
      tensor->shape = Shape{dims[3], dims[2], dims[1], dims[0]};
      break;
  }
  return Status();
}

// Converts offsets within the data to offsets within the file and checks that tensors fit in it.
Status GgufParser::PlaceTensors(std::vector<StoredTensor>* tensors, size_t first) {
  const uint64_t alignment = part_.alignment;
  part_.data_offset = (position_ + alignment - 1) / alignment * alignment;
  const uint64_t size = source_->size();
  for (size_t i = first; i < tensors->size(); ++i) {
    StoredTensor& tensor = (*tensors)[i];
    const uint64_t bytes = tensor.bytes.value_or(0);
    const uint64_t room = size < part_.data_offset ? 0 : size - part_.data_offset;
    if (tensor.offset > room || bytes > room - tensor.offset) {
      field_ = fmt::format("tensor {} {}", i - first, Quoted(tensor.name));
      last_ = position_;
      return Malformed("data",
                       fmt::format("its {} bytes at {} of the data, which starts at byte {}, end "
                                   "past the end of the file ({} bytes); download it again",
                                   bytes, tensor.offset, part_.data_offset, size));
    }
    tensor.offset += part_.data_offset;
  }
  return CheckOverlap(*tensors, first);
}

Status GgufParser::CheckOverlap(const std::vector<StoredTensor>& tensors, size_t first) const {
  std::vector<const StoredTensor*> sorted;
  for (size_t i = first; i < tensors.size(); ++i) sorted.push_back(&tensors[i]);
  std::sort(sorted.begin(), sorted.end(),
            [](const StoredTensor* a, const StoredTensor* b) { return a->offset < b->offset; });
  for (size_t i = 1; i < sorted.size(); ++i) {
    const StoredTensor& a = *sorted[i - 1];
    const StoredTensor& b = *sorted[i];
    if (a.offset + a.bytes.value_or(0) > b.offset) {
      return DataLoss("{}: at byte {}: tensors {} and {} overlap", source_->name(), b.offset,
                      Quoted(a.name), Quoted(b.name));
    }
  }
  return Status();
}

Status GgufParser::Need(uint64_t size, const char* what) {
  last_ = position_;
  if (size > Left()) {
    return Malformed(what, fmt::format("needs {} bytes, but the file ends after {}; "
                                       "it is truncated or corrupt",
                                       size, Left()));
  }
  const uint64_t end = position_ + size;
  if (end > kMaxMetadataBytes) {
    return Malformed(what, fmt::format("the metadata is longer than {} bytes", kMaxMetadataBytes));
  }
  std::vector<std::byte>& bytes = storage_->bytes;
  if (end <= bytes.size()) return Status();
  const uint64_t old_size = bytes.size();
  const uint64_t new_size = std::min(source_->size(), std::max({end, 2 * old_size, kFirstRead}));
  bytes.resize(new_size);
  return source_->ReadAt(old_size, bytes.data() + old_size, new_size - old_size);
}

template <typename T>
Status GgufParser::Read(const char* what, T* value) {
  RETURN_IF_ERROR(Need(sizeof(T), what));
  std::memcpy(value, storage_->bytes.data() + position_, sizeof(T));
  position_ += sizeof(T);
  return Status();
}

Status GgufParser::ReadString(const char* what, uint64_t* size) {
  RETURN_IF_ERROR(Read(what, size));
  RETURN_IF_ERROR(Need(*size, what));
  position_ += *size;
  return Status();
}

Status GgufParser::ReadType(const char* what, GgufType* type) {
  uint32_t number = 0;
  RETURN_IF_ERROR(Read(what, &number));
  if (number >= kNumGgufTypes) return Malformed(what, fmt::format("{} is not a type", number));
  *type = static_cast<GgufType>(number);
  return Status();
}

Status GgufParser::CheckCount(uint64_t count, uint64_t min_bytes, const char* what) {
  if (count <= Left() / min_bytes) return Status();
  return Malformed(what, fmt::format("{} cannot fit in the {} bytes that are left", count, Left()));
}

std::string GgufParser::Text(uint64_t offset, uint64_t size) const {
  return std::string(reinterpret_cast<const char*>(storage_->bytes.data()) + offset, size);
}

Status GgufParser::Error(StatusCode code, const char* what, const std::string& message) const {
  return Status(code, fmt::format("{}: at byte {}: {}, {}: {}", source_->name(), last_, field_,
                                  what, message));
}

}  // namespace tokamak
