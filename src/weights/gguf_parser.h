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

// What GgufValue handles refer to. Handles hold offsets, so that the buffers may grow meanwhile.
struct GgufStorage {
  std::vector<std::byte> bytes;   // the metadata region, from the start of the file
  std::vector<uint64_t> strings;  // offsets of the elements of string arrays (at their length)
  std::vector<GgufValue> arrays;  // elements of arrays of arrays
};

class GgufParser {
 public:
  GgufParser(std::shared_ptr<const ByteSource> source, int part_index);

  // Call once. Tensors are appended to `tensors`.
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

  // Makes [position_, position_ + size) available in storage_->bytes.
  Status Need(uint64_t size, const char* what);
  template <typename T>
  Status Read(const char* what, T* value);
  // The offset of the text is position_ - size afterwards.
  Status ReadString(const char* what, uint64_t* size);
  Status ReadType(const char* what, GgufType* type);
  // `count` things of at least `min_bytes` each must still fit in the file.
  Status CheckCount(uint64_t count, uint64_t min_bytes, const char* what);
  std::string Text(uint64_t offset, uint64_t size) const;
  uint64_t Left() const { return source_->size() - position_; }
  // "file: at byte N: field, what: message", at the last thing read.
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
  uint64_t last_ = 0;  // where the thing last read starts
  std::string field_;  // what is being parsed, for messages
};

}  // namespace tokamak
