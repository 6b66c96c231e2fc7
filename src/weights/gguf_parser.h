// Parses one GGUF file's metadata region. Internal to weights/.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "weights/gguf.h"

namespace tokamak {

// The memory behind GgufValue handles. Handles hold offsets, so the buffers may grow while parsing.
struct GgufStorage {
  std::vector<std::byte> bytes;   // the metadata region from the start of the file
  std::vector<uint64_t> strings;  // file offsets of string array elements (at their length)
  std::vector<GgufValue> arrays;  // elements of arrays of arrays
};

class GgufParser {
 public:
  GgufParser(std::shared_ptr<const ByteSource> source, int part_index);

  // Call once. Appends to `tensors`.
  Result<GgufPart> Parse(std::vector<StoredTensor>* tensors);

 private:
  Status ParseHeader(uint64_t* num_tensors, uint64_t* num_entries);
  Status ParseEntry(uint64_t index);
  Status ParseValue(GgufType type, int depth, GgufValue* value);
  Status ParseArray(int depth, GgufValue* value);
  Status ParseTensor(uint64_t index, StoredTensor* tensor);
  Status ParseShape(StoredTensor* tensor);
  Status ParseAlignment();
  Status PlaceTensors(std::vector<StoredTensor>* tensors, size_t first);
  Status CheckOverlap(const std::vector<StoredTensor>& tensors, size_t first) const;

  // Ensures that [position_, position_ + size) is in storage_->bytes.
  Status Need(uint64_t size, const char* what);
  template <typename T>
  Status Read(const char* what, T* value);
  // Afterwards the text is at position_ - size.
  Status ReadString(const char* what, uint64_t* size);
  Status ReadType(const char* what, GgufType* type);
  // Checks that `count` items of at least `min_bytes` each still fit in the file.
  Status CheckCount(uint64_t count, uint64_t min_bytes, const char* what);
  std::string Text(uint64_t offset, uint64_t size) const;
  uint64_t Left() const { return source_->size() - position_; }
  // "file: at byte N: field, what: message", where N is the start of the last read.
  Status Error(StatusCode code, const char* what, const std::string& message) const;
  Status Malformed(const char* what, const std::string& message) const {
    return Error(StatusCode::kDataLoss, what, message);
  }

  std::shared_ptr<const ByteSource> source_;
  std::shared_ptr<GgufStorage> storage_;
  GgufPart part_;
  int part_index_;
  uint64_t position_ = 0;
  uint64_t num_nested_arrays_ = 0;
  uint64_t last_ = 0;  // start of the last read
  std::string field_;  // being parsed, for messages
};

}  // namespace tokamak
