// Writes small GGUF files for tests (tokamak_gguf_testing).
//
//   GgufWriter writer;
//   writer.Set("general.architecture", "llama");
//   writer.SetArray("tokenizer.ggml.tokens", std::vector<std::string>{"a", "b"});
//   writer.AddTensor("output_norm.weight", DType::kF32, {64}, values);
//   writer.WriteFile(path);  // or writer.Bytes()
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tensor/dtype.h"
#include "tensor/shape.h"
#include "tokamak/status.h"
#include "weights/gguf_types.h"

namespace tokamak {

class GgufWriter {
 public:
  explicit GgufWriter(uint32_t version = 3, uint32_t alignment = 32);

  // Adds metadata, in order; duplicate keys are not checked. Integers are uint32 unless a type is
  // given.
  void Set(std::string_view key, std::string_view value);
  void Set(std::string_view key, const char* value) { Set(key, std::string_view(value)); }
  void Set(std::string_view key, bool value);
  void Set(std::string_view key, float value);
  void Set(std::string_view key, double value);
  void Set(std::string_view key, int64_t value, GgufType type = GgufType::kUint32);
  void Set(std::string_view key, int value) { Set(key, static_cast<int64_t>(value)); }
  void SetArray(std::string_view key, const std::vector<std::string>& values);
  void SetArray(std::string_view key, const std::vector<float>& values);
  void SetArray(std::string_view key, const std::vector<int32_t>& values);
  // `payload` is what follows the type number in the file.
  void SetRaw(std::string_view key, uint32_t type, std::string_view payload);

  // `shape` is outermost first ([rows, cols]). `values` has shape.elements() floats; QuantizeRow
  // converts them to `dtype`.
  void AddTensor(std::string_view name, DType dtype, const Shape& shape,
                 std::span<const float> values);
  // Adds `data` as it is, with any type number.
  void AddRawTensor(std::string_view name, uint32_t type, const Shape& shape,
                    std::string_view data);

  std::string Bytes() const;
  Status WriteFile(const std::string& path) const;

 private:
  struct Tensor {
    std::string name;
    uint32_t type;
    Shape shape;
    std::string data;
  };

  uint32_t version_;
  uint32_t alignment_;
  uint64_t num_entries_ = 0;
  std::string metadata_;
  std::vector<Tensor> tensors_;
};

}  // namespace tokamak
