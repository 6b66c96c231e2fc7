#include "weights/testing/gguf_writer.h"

#include <cstdio>
#include <cstring>

#include "base/check.h"
#include "base/error.h"
#include "quant/quantize.h"

namespace tokamak {
namespace {

template <typename T>
void Append(std::string* out, T value) {
  char bytes[sizeof(T)];
  std::memcpy(bytes, &value, sizeof(T));
  out->append(bytes, sizeof(T));
}

void AppendString(std::string* out, std::string_view text) {
  Append(out, static_cast<uint64_t>(text.size()));
  out->append(text);
}

template <typename T>
std::string Payload(T value) {
  std::string out;
  Append(&out, value);
  return out;
}

std::string ArrayHeader(GgufType element_type, size_t count) {
  std::string out;
  Append(&out, static_cast<uint32_t>(element_type));
  Append(&out, static_cast<uint64_t>(count));
  return out;
}

void PadTo(std::string* out, size_t alignment) {
  out->resize((out->size() + alignment - 1) / alignment * alignment, '\0');
}

}  // namespace

GgufWriter::GgufWriter(uint32_t version, uint32_t alignment)
    : version_(version), alignment_(alignment) {
  if (alignment != 32) Set("general.alignment", static_cast<int64_t>(alignment));
}

void GgufWriter::SetRaw(std::string_view key, uint32_t type, std::string_view payload) {
  AppendString(&metadata_, key);
  Append(&metadata_, type);
  metadata_.append(payload);
  ++num_entries_;
}

void GgufWriter::Set(std::string_view key, std::string_view value) {
  std::string payload;
  AppendString(&payload, value);
  SetRaw(key, static_cast<uint32_t>(GgufType::kString), payload);
}
void GgufWriter::Set(std::string_view key, bool value) {
  SetRaw(key, static_cast<uint32_t>(GgufType::kBool), Payload(static_cast<uint8_t>(value)));
}
void GgufWriter::Set(std::string_view key, float value) {
  SetRaw(key, static_cast<uint32_t>(GgufType::kFloat32), Payload(value));
}
void GgufWriter::Set(std::string_view key, double value) {
  SetRaw(key, static_cast<uint32_t>(GgufType::kFloat64), Payload(value));
}
void GgufWriter::Set(std::string_view key, int64_t value, GgufType type) {
  // Little-endian: the first bytes of the 64-bit number are the narrower number.
  CHECK(ScalarBytes(type) > 0);
  SetRaw(key, static_cast<uint32_t>(type), Payload(value).substr(0, ScalarBytes(type)));
}
void GgufWriter::SetArray(std::string_view key, const std::vector<std::string>& values) {
  std::string payload = ArrayHeader(GgufType::kString, values.size());
  for (const std::string& value : values) AppendString(&payload, value);
  SetRaw(key, static_cast<uint32_t>(GgufType::kArray), payload);
}
void GgufWriter::SetArray(std::string_view key, const std::vector<float>& values) {
  std::string payload = ArrayHeader(GgufType::kFloat32, values.size());
  for (float value : values) Append(&payload, value);
  SetRaw(key, static_cast<uint32_t>(GgufType::kArray), payload);
}
void GgufWriter::SetArray(std::string_view key, const std::vector<int32_t>& values) {
  std::string payload = ArrayHeader(GgufType::kInt32, values.size());
  for (int32_t value : values) Append(&payload, value);
  SetRaw(key, static_cast<uint32_t>(GgufType::kArray), payload);
}

void GgufWriter::AddTensor(std::string_view name, DType dtype, const Shape& shape,
                           std::span<const float> values) {
  CHECK(static_cast<int64_t>(values.size()) == shape.elements());
  std::string data(RowBytes(dtype, shape.cols()) * static_cast<size_t>(shape.rows()), '\0');
  QuantizeRow(dtype, values.data(), shape.elements(), data.data());
  AddRawTensor(name, GgufTensorTypeId(dtype), shape, data);
}

void GgufWriter::AddRawTensor(std::string_view name, uint32_t type, const Shape& shape,
                              std::string_view data) {
  tensors_.push_back({std::string(name), type, shape, std::string(data)});
}

std::string GgufWriter::Bytes() const {
  std::string out = "GGUF";
  Append(&out, version_);
  Append(&out, static_cast<uint64_t>(tensors_.size()));
  Append(&out, num_entries_);
  out += metadata_;
  std::string data;
  for (const Tensor& tensor : tensors_) {
    PadTo(&data, alignment_);
    AppendString(&out, tensor.name);
    Append(&out, static_cast<uint32_t>(tensor.shape.rank()));
    for (int i = tensor.shape.rank() - 1; i >= 0; --i) {
      Append(&out, static_cast<uint64_t>(tensor.shape[i]));
    }
    Append(&out, tensor.type);
    Append(&out, static_cast<uint64_t>(data.size()));
    data += tensor.data;
  }
  PadTo(&out, alignment_);
  return out + data;
}

Status GgufWriter::WriteFile(const std::string& path) const {
  const std::string bytes = Bytes();
  std::FILE* file = std::fopen(path.c_str(), "wb");
  if (file == nullptr) return Unavailable("{}: cannot create", path);
  const bool written = std::fwrite(bytes.data(), 1, bytes.size(), file) == bytes.size();
  const bool closed = std::fclose(file) == 0;
  if (!written || !closed) return Unavailable("{}: cannot write", path);
  return Status();
}

}  // namespace tokamak
