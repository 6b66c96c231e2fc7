#include "nn/builder.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

#include "base/ceil_div.h"
#include "base/check.h"
#include "base/error.h"
#include "quant/quantize.h"
#include "weights/row_range.h"

namespace tokamak::nn {
namespace {

class ColumnRangeSource final : public WeightSource {
 public:
  ColumnRangeSource(SourcePtr source, IndexRange cols)
      : source_(std::move(source)), cols_(cols), shape_(MakeShape(*source_, cols)) {}

  const std::string& name() const override { return source_->name(); }
  DType dtype() const override { return source_->dtype(); }
  const Shape& shape() const override { return shape_; }
  Status ReadRows(int64_t begin, int64_t end, std::byte* destination) const override {
    const size_t whole = RowBytes(dtype(), source_->shape().cols());
    const size_t skip = RowBytes(dtype(), cols_.begin);
    const size_t part = RowBytes(dtype(), cols_.size());
    std::vector<std::byte> row(whole);
    for (int64_t i = begin; i < end; ++i, destination += part) {
      RETURN_IF_ERROR(source_->ReadRows(i, i + 1, row.data()));
      std::copy_n(row.data() + skip, part, destination);
    }
    return Status();
  }

 private:
  static Shape MakeShape(const WeightSource& source, IndexRange cols) {
    return source.shape().rank() == 1 ? Shape{cols.size()}
                                      : Shape{source.shape().rows(), cols.size()};
  }

  SourcePtr source_;
  IndexRange cols_;
  Shape shape_;
};

}  // namespace

Builder Builder::operator/(std::string_view name) const {
  std::string path = path_;
  if (!path.empty()) path += '.';
  path += name;
  return Builder(*load_, std::move(path));
}

void Builder::Fail(Status status) const {
  if (load_->status.ok()) load_->status = std::move(status);
}

SourcePtr Builder::OrFail(Result<SourcePtr> source) const {
  if (source.ok()) return *std::move(source);
  Fail(source.status());
  return nullptr;
}

SourcePtr Builder::Find(const Shape& shape, std::string_view meaning) const {
  if (!ok()) return nullptr;
  SourcePtr source = OrFail(load_->tensors.Find(path_, shape, meaning));
  if (source) {
    load_->spec.num_parameters += shape.elements();
    load_->bytes_found += RowBytes(source->dtype(), shape.cols()) * shape.rows();
  }
  return source;
}

SourcePtr Builder::FindEither(const Shape& first, const Shape& second,
                              std::string_view meaning) const {
  const bool fits = ok() && load_->tensors.Find(path_, first, meaning).ok();
  return Find(fits ? first : second, meaning);
}

SourcePtr Builder::Columns(SourcePtr source, IndexRange cols) const {
  if (!source || cols == IndexRange{0, source->shape().cols()}) return source;
  CHECK(0 <= cols.begin && cols.begin <= cols.end && cols.end <= source->shape().cols());
  const int block = Info(source->dtype()).block_elements;
  if (cols.begin % block == 0 && cols.end % block == 0) {
    return std::make_shared<ColumnRangeSource>(std::move(source), cols);
  }
  Fail(Unimplemented("{}: columns [{}, {}) cut through a block of {} ({} elements)", source->name(),
                     cols.begin, cols.end, Name(source->dtype()), block));
  return nullptr;
}

IndexRange Builder::Shard(int64_t count, std::string_view what, int64_t unit) const {
  if (!parallel().Divides(count, unit)) {
    const std::string blocks =
        unit > 1 ? fmt::format(", because it is stored in blocks of {}", unit) : "";
    Fail(InvalidArgument("{}: {} {} cannot be divided among {} ranks{}; {} would work", path_, what,
                         count, parallel().size, blocks, CeilDiv(count, unit)));
  }
  return parallel().Shard(count, unit);
}

std::vector<HeadShard> Builder::ShardHeads(int64_t num_heads, int64_t num_kv_heads, int64_t dim,
                                           int64_t block) const {
  if (!ok()) return {};
  const int64_t unit = block / std::gcd(block, dim);
  const auto divide = [&](int32_t size) {
    std::vector<HeadShard> all;
    for (int32_t rank = 0; rank < size; ++rank) {
      const auto shard = ParallelContext{size, rank}.ShardHeads(num_heads, num_kv_heads, unit);
      if (shard) all.push_back(*shard);
    }
    return static_cast<int32_t>(all.size()) == size ? all : std::vector<HeadShard>();
  };
  std::vector<HeadShard> all = divide(parallel().size);
  if (!all.empty()) return all;
  int32_t fewer = parallel().size - 1;
  while (divide(fewer).empty()) --fewer;  // one rank always works
  const std::string blocks =
      unit > 1 ? fmt::format(", because {} heads share blocks of {} columns", unit, block) : "";
  Fail(InvalidArgument(
      "{}: {} heads and {} KV heads cannot be divided among {} ranks{}; {} would work", path_,
      num_heads, num_kv_heads, parallel().size, blocks, fewer));
  return {};
}

int64_t Builder::BlockColumns(const Shape& shape) const {
  if (parallel().size == 1 || !ok()) return 1;
  // Whoever reads the weight reports its error.
  const Result<SourcePtr> source = load_->tensors.Find(path_, shape, {});
  return source.ok() ? Info((*source)->dtype()).block_elements : 1;
}

template <typename Packed>
std::shared_ptr<const Packed> Builder::Record(std::span<const WeightSpec> read,
                                              Result<std::unique_ptr<Packed>> packed) const {
  if (!packed.ok()) {
    Fail(packed.status());
    return nullptr;
  }
  for (const WeightSpec& spec : read) {
    for (const SourcePtr& part : spec.parts) {
      load_->bytes_read += RowBytes(part->dtype(), part->shape().cols()) * part->shape().rows();
    }
  }
  load_->spec.weight_bytes += (*packed)->bytes();
  if (load_->progress) load_->progress(load_->bytes_read);
  return *std::move(packed);
}

WeightPtr Builder::PackWeight(std::vector<SourcePtr> parts, WeightUse use) const {
  if (!ok()) return nullptr;
  const WeightSpec spec = {.parts = std::move(parts), .use = use};
  return Record({&spec, 1}, load_->ops->PackWeight(spec));
}

StackPtr Builder::PackStack(std::vector<std::vector<SourcePtr>> members, WeightUse use) const {
  if (!ok()) return nullptr;
  std::vector<WeightSpec> specs;
  for (std::vector<SourcePtr>& parts : members) {
    specs.push_back({.parts = std::move(parts), .use = use});
  }
  return Record(std::span<const WeightSpec>(specs), load_->ops->PackStack(specs));
}

std::vector<float> Builder::ReadValues(const std::vector<SourcePtr>& parts) const {
  std::vector<float> values;
  for (const SourcePtr& part : parts) {
    if (!ok()) return {};
    const int64_t elements = part->shape().elements();
    constexpr int64_t kMost = int64_t{1} << 26;
    if (elements > kMost - static_cast<int64_t>(values.size())) {
      Fail(ResourceExhausted("{}: has {} values; at most {} are supported for such a weight",
                             part->name(), elements, kMost));
      return {};
    }
    std::vector<std::byte> stored(RowBytes(part->dtype(), elements));
    if (Status status = part->ReadRows(0, part->shape().rows(), stored.data()); !status.ok()) {
      Fail(std::move(status));
      return {};
    }
    values.resize(values.size() + static_cast<size_t>(elements));
    DequantizeRow(part->dtype(), stored.data(), elements, values.data() + values.size() - elements);
    load_->bytes_read += static_cast<int64_t>(stored.size());
  }
  return values;
}

OwnedTensor Builder::ReadVectors(const std::vector<SourcePtr>& parts, float offset) const {
  std::vector<float> values = ReadValues(parts);
  if (!ok()) return {};
  for (float& value : values) value += offset;
  return Store(values, Shape{static_cast<int64_t>(values.size())});
}

OwnedTensor Builder::Store(const std::vector<float>& values, const Shape& shape) const {
  if (!ok()) return {};
  Result<OwnedTensor> result = Upload(*load_->ops, values, shape);
  if (!result.ok()) {
    Fail(result.status());
    return {};
  }
  load_->spec.weight_bytes += static_cast<int64_t>(result->storage.size());
  return *std::move(result);
}

OwnedTensor Builder::ReadVector(int64_t length, float offset) const {
  SourcePtr source = Find(Shape{length});
  return source ? ReadVectors({std::move(source)}, offset) : OwnedTensor{};
}

int32_t Builder::AddKvLayer(int32_t window, KvLayerSpec layer) const {
  const CacheGroupKind kind = window > 0 ? CacheGroupKind::kWindow : CacheGroupKind::kFull;
  std::vector<CacheLayout::Group>& groups = load_->spec.cache.groups;
  std::vector<KvLayerSpec>& layers = load_->spec.cache.layers;
  std::vector<KvLayerSpec>& shapes = load_->group_shapes;  // a group shares one plan
  size_t group = 0;
  while (group < groups.size() &&
         !(groups[group].window == window && shapes[group].SameShape(layer))) {
    ++group;
  }
  layer.group = static_cast<int32_t>(group);
  if (group == groups.size()) {
    groups.push_back({kind, window});
    shapes.push_back(layer);
  }
  layers.push_back(layer);
  return static_cast<int32_t>(layers.size()) - 1;
}

Result<OwnedTensor> Upload(Ops& ops, const std::vector<float>& values, const Shape& shape) {
  CHECK(static_cast<int64_t>(values.size()) == shape.elements());
  const size_t bytes = values.size() * sizeof(float);
  ASSIGN_OR_RETURN(Buffer storage, ops.Allocate(bytes, MemoryKind::kDevice));
  const std::unique_ptr<Stream> stream = ops.MakeStream();
  ops.CopyToDevice(storage.data(), values.data(), bytes, *stream);
  RETURN_IF_ERROR(ops.Synchronize(*stream));
  const Tensor tensor(storage.data(), DType::kF32, shape);
  return OwnedTensor{std::move(storage), tensor};
}

SourcePtr RowRange(SourcePtr source, IndexRange rows) {
  if (!source || rows == IndexRange{0, source->shape().rows()}) return source;
  return tokamak::RowRange(std::move(source), rows.begin, rows.end);
}

}  // namespace tokamak::nn
