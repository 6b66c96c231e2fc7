#include "weights/gguf_tensors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/check.h"
#include "base/error.h"
#include "base/printable.h"
#include "ops/weight_source.h"
#include "weights/reordered.h"
#include "weights/row_range.h"

namespace tokamak {
namespace {

// Undoes a permutation of rows while reading.
class DeinterleavedHeads final : public WeightSource {
 public:
  DeinterleavedHeads(std::shared_ptr<const WeightSource> source, int64_t head_rows)
      : source_(std::move(source)),
        head_rows_(head_rows),
        is_vector_(source_->shape().rank() == 1),
        row_bytes_(is_vector_ ? RowBytes(dtype(), 1) : RowBytes(dtype(), shape().cols())) {}

  const std::string& name() const override { return source_->name(); }
  DType dtype() const override { return source_->dtype(); }
  const Shape& shape() const override { return source_->shape(); }

  Status ReadRows(int64_t begin, int64_t end, std::byte* destination) const override {
    CHECK(0 <= begin && begin <= end && end <= shape().rows());
    if (is_vector_) return begin == end ? Status() : ReadVector(destination);
    std::vector<std::byte> buffer;
    while (begin < end) {
      // Within a head, one read covers all requested rows.
      const int64_t stop = std::min(end, (begin / head_rows_ + 1) * head_rows_);
      int64_t first = Stored(begin);
      int64_t last = first;
      for (int64_t row = begin + 1; row < stop; ++row) {
        first = std::min(first, Stored(row));
        last = std::max(last, Stored(row));
      }
      buffer.resize(static_cast<size_t>(last + 1 - first) * row_bytes_);
      RETURN_IF_ERROR(source_->ReadRows(first, last + 1, buffer.data()));
      for (; begin < stop; ++begin, destination += row_bytes_) {
        std::memcpy(destination,
                    buffer.data() + static_cast<size_t>(Stored(begin) - first) * row_bytes_,
                    row_bytes_);
      }
    }
    return Status();
  }

 private:
  // The position of `row` in the source.
  int64_t Stored(int64_t row) const {
    const int64_t in_head = row % head_rows_;
    const int64_t half = in_head / (head_rows_ / 2);
    const int64_t index = in_head % (head_rows_ / 2);
    return row - in_head + 2 * index + half;
  }

  Status ReadVector(std::byte* destination) const {
    const int64_t elements = shape().cols();
    std::vector<std::byte> stored(static_cast<size_t>(elements) * row_bytes_);
    RETURN_IF_ERROR(source_->ReadRows(0, 1, stored.data()));
    for (int64_t i = 0; i < elements; ++i) {
      std::memcpy(destination + static_cast<size_t>(i) * row_bytes_,
                  stored.data() + static_cast<size_t>(Stored(i)) * row_bytes_, row_bytes_);
    }
    return Status();
  }

  const std::shared_ptr<const WeightSource> source_;
  const int64_t head_rows_;
  const bool is_vector_;
  const size_t row_bytes_;  // for a vector, bytes of an element
};

// `source` stores the d rows of each of its `num_heads` heads as (0, d/2, 1, d/2 + 1, ...). Returns
// them in the order 0, 1, 2, ... For a vector, elements count as rows. Reads the file once per
// head. kDataLoss if the rows are not a whole number of even-sized heads.
Result<std::shared_ptr<const WeightSource>> DeinterleaveHeads(
    std::shared_ptr<const WeightSource> source, int64_t num_heads) {
  const bool is_vector = source->shape().rank() == 1;
  const int64_t rows = is_vector ? source->shape().cols() : source->shape().rows();
  if (num_heads <= 0 || rows % num_heads != 0 || rows / num_heads % 2 != 0) {
    return DataLoss(
        "{} has {} rows, which do not make {} heads of an even size. The file does not match its "
        "own metadata; download it again or report it to its author.",
        source->name(), rows, num_heads);
  }
  if (is_vector && IsBlockType(source->dtype())) {
    return Unimplemented("{}: a vector of type {} cannot be permuted", source->name(),
                         Name(source->dtype()));
  }
  return std::shared_ptr<const WeightSource>(
      std::make_shared<DeinterleavedHeads>(std::move(source), rows / num_heads));
}

class GgufTensors final : public TensorSource {
 public:
  GgufTensors(std::shared_ptr<const GgufFile> file, const GgufArchitecture& architecture,
              int64_t query_heads, int64_t key_heads, int64_t num_experts)
      : file_(std::move(file)),
        architecture_(architecture),
        query_heads_(query_heads),
        key_heads_(key_heads),
        num_experts_(num_experts),
        used_(file_->tensors().size()) {}

  bool Has(std::string_view name) const override {
    const GgufTensorPlace place = FindGgufTensorPlace(architecture_, name);
    return !place.name.empty() && file_->FindTensor(place.name) != nullptr;
  }

  Result<std::shared_ptr<const WeightSource>> Find(std::string_view name, const Shape& expected,
                                                   std::string_view meaning) override {
    const GgufTensorPlace place = FindGgufTensorPlace(architecture_, name);
    const StoredTensor* tensor = place.name.empty() ? nullptr : file_->FindTensor(place.name);
    if (tensor == nullptr) {
      return NotFound("{}: there is no tensor {}, which the model needs as {}", file_->name(),
                      place.name.empty() ? "" : Quoted(place.name), name);
    }
    const std::string& path = file_->parts()[static_cast<size_t>(tensor->part)].source->name();
    Shape stored = expected;
    if (place.expert) {
      stored = expected.rank() == 1 ? Shape{num_experts_, expected.cols()}
                                    : Shape{num_experts_, expected.rows(), expected.cols()};
    }
    // A matrix of one row may be stored as a vector.
    if (tensor->shape != stored &&
        !(stored.rank() == 2 && stored[0] == 1 && tensor->shape == Shape{stored.cols()})) {
      return DataLoss(
          "{}: tensor {} has shape {}, expected {}{}. The file does not match its own "
          "metadata; download it again or report it to its author.",
          path, Quoted(tensor->name), tensor->shape.ToString(), stored.ToString(),
          meaning.empty() ? "" : fmt::format(" ({})", meaning));
    }
    ASSIGN_OR_RETURN(std::shared_ptr<const WeightSource> weight, file_->Weight(*tensor));
    if (!HoldsWeights(weight->dtype())) {
      return DataLoss("{}: tensor {} has type {}, but weights cannot be integers", path,
                      Quoted(tensor->name), tensor->type_name);
    }
    used_[static_cast<size_t>(tensor - file_->tensors().data())] = true;
    if (place.expert) {
      const int64_t begin = *place.expert * expected.rows();
      return RowRange(std::move(weight), begin, begin + expected.rows());
    }
    switch (place.rows) {
      case GgufRows::kAsIs:
        return weight;
      case GgufRows::kInterleavedQueryHeads:
        return DeinterleaveHeads(std::move(weight), query_heads_);
      case GgufRows::kInterleavedKeyHeads:
        return DeinterleaveHeads(std::move(weight), key_heads_);
      case GgufRows::kPlusOne:
        return MinusOne(std::move(weight));
    }
    return weight;
  }

  void Skip(std::string_view prefix) override {
    for (const std::string& stored : GgufPrefixes(prefix)) {
      for (size_t i = 0; i < used_.size(); ++i) {
        if (file_->tensors()[i].name.starts_with(stored)) used_[i] = true;
      }
    }
  }

  Status CheckAllUsed() const override {
    std::vector<std::string> unused;
    for (size_t i = 0; i < used_.size(); ++i) {
      const std::string& name = file_->tensors()[i].name;
      if (!used_[i] && !IsInConfig(name)) unused.push_back(name);
    }
    return CheckNoneUnused(file_->name(), unused);
  }

 private:
  // LongRoPE's factors are part of the configuration (gguf_config.cc).
  bool IsInConfig(std::string_view name) const {
    return std::string_view(architecture_.name) == "phi3" && name.starts_with("rope_factors_");
  }

  const std::shared_ptr<const GgufFile> file_;
  const GgufArchitecture& architecture_;
  const int64_t query_heads_, key_heads_, num_experts_;
  std::vector<bool> used_;  // by index in file_->tensors()
};

int64_t IntOrZero(const JsonValue& config, std::string_view name) {
  const JsonValue* value = config.Find(name);
  return value ? value->AsInt().value_or(0) : 0;
}

// The field's name differs between families.
int64_t NumExperts(const JsonValue& config) {
  return std::max({IntOrZero(config, "num_experts"), IntOrZero(config, "num_local_experts"),
                   IntOrZero(config, "n_routed_experts")});
}

}  // namespace

std::shared_ptr<TensorSource> MakeGgufTensors(std::shared_ptr<const GgufFile> file,
                                              const GgufArchitecture& architecture,
                                              const JsonValue& config) {
  return std::make_shared<GgufTensors>(
      std::move(file), architecture, IntOrZero(config, "num_attention_heads"),
      IntOrZero(config, "num_key_value_heads"), NumExperts(config));
}

}  // namespace tokamak
