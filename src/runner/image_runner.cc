#include "runner/image_runner.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/ceil_div.h"
#include "base/check.h"
#include "base/error.h"
#include "runner/attention_shapes.h"
#include "runner/counting_pass.h"

namespace tokamak {
namespace {

constexpr int64_t kAlignment = 64;  // alignment of a pass's lists, in bytes

RunnerShape ToRunnerShape(const ImageEncoder& encoder, const ImageRunnerShape& shape) {
  RunnerShape runner;
  runner.max_seqs = shape.max_sequences;
  runner.max_step_tokens = shape.max_tokens;
  runner.max_context = encoder.spec().max_sequence_len;
  runner.block_size = shape.block_size;
  runner.kv_dtype = shape.kv_dtype;
  return runner;
}

// The first layer of each group, whose memory the others share. The groups share it too.
nn::CacheLayout OneLayerPerGroup(const nn::CacheLayout& all) {
  nn::CacheLayout one;
  one.groups = all.groups;
  for (size_t g = 0; g < all.groups.size(); ++g) {
    one.layers.push_back(*std::find_if(
        all.layers.begin(), all.layers.end(),
        [g](const nn::KvLayerSpec& layer) { return static_cast<size_t>(layer.group) == g; }));
  }
  return one;
}

int64_t ListBytes(int64_t count, int64_t element = sizeof(int32_t)) {
  return CeilDiv(count * element, kAlignment) * kAlignment;
}

}  // namespace

DType ImageKvDtype(DType text_dtype) {
  const bool precise =
      text_dtype == DType::kF32 || text_dtype == DType::kF16 || text_dtype == DType::kBF16;
  return precise ? text_dtype : DType::kBF16;
}

Result<ImageRunnerMemory> ProfileImageRunner(const ImageEncoder& encoder,
                                             const ImageRunnerShape& shape) {
  const ImageEncoderSpec& spec = encoder.spec();
  if (shape.max_sequences < 1 || shape.max_tokens < spec.max_sequence_len) {
    return InvalidArgument(
        "an image takes passes of {} tokens through the vision tower, but at most {} fit",
        spec.max_sequence_len, shape.max_tokens);
  }
  const int64_t tokens = shape.max_tokens, sequences = shape.max_sequences;
  const std::unique_ptr<CountOps> count = MakeCountOps();
  ASSIGN_OR_RETURN(const std::unique_ptr<CountingPass> counting,
                   CountingPass::Make(spec.cache, *count, ToRunnerShape(encoder, shape), tokens,
                                      /*num_logits=*/tokens));
  count->Reset();
  (void)encoder.Forward(counting->pass(), Tensor(nullptr, DType::kF32, {tokens, spec.patch_size}));
  const int64_t per_sequence = CeilDiv(spec.max_sequence_len, shape.block_size);
  const int64_t blocks =
      std::min(sequences * per_sequence, CeilDiv(tokens, shape.block_size) + sequences);
  const int64_t block_bytes =
      KvBlockLayout::Make(OneLayerPerGroup(spec.cache), shape.block_size, shape.kv_dtype)
          .block_bytes;
  ImageRunnerMemory memory;
  memory.arena_bytes = static_cast<int64_t>(counting->arena().peak());
  memory.num_blocks = static_cast<int32_t>(blocks);
  memory.cache_bytes = blocks * block_bytes;
  // Positions and the three lists of rows have at most one entry per token; so have the two of
  // newlines, but for images whose lines are empty.
  memory.staging_bytes = ListBytes(tokens * spec.patch_size) + 4 * ListBytes(tokens) +
                         2 * ListBytes(tokens + sequences * spec.max_image_rows) +
                         ListBytes(tokens, sizeof(int64_t)) + 3 * ListBytes(sequences + 1) +
                         ListBytes(sequences * per_sequence);
  memory.token_macs = count->counts()[OpKind::kLinear].flops / 2 / tokens;
  return memory;
}

ImageRunner::ImageRunner(const ImageEncoder& encoder, Ops& ops, const ImageRunnerShape& shape,
                         KvPool pool)
    : encoder_(encoder),
      ops_(ops),
      shape_(shape),
      pool_(std::move(pool)),
      uploaded_(ops.MakeEvent()),
      done_(ops.MakeEvent()) {}

ImageRunner::~ImageRunner() { (void)ops_.Await(*done_); }

Result<std::unique_ptr<ImageRunner>> ImageRunner::Create(const ImageEncoder& encoder, Ops& ops,
                                                         const ImageRunnerShape& shape) {
  ASSIGN_OR_RETURN(const ImageRunnerMemory memory, ProfileImageRunner(encoder, shape));
  ASSIGN_OR_RETURN(KvPool pool, KvPool::Create(ops, OneLayerPerGroup(encoder.spec().cache),
                                               {.block_size = shape.block_size,
                                                .dtype = shape.kv_dtype,
                                                .num_device_blocks = memory.num_blocks,
                                                .num_host_blocks = 0}));
  std::unique_ptr<ImageRunner> runner(new ImageRunner(encoder, ops, shape, std::move(pool)));
  RETURN_IF_ERROR(runner->Init(memory));
  return runner;
}

Status ImageRunner::Init(const ImageRunnerMemory& memory) {
  ASSIGN_OR_RETURN(Buffer arena,
                   ops_.Allocate(static_cast<size_t>(memory.arena_bytes), MemoryKind::kDevice));
  arena_ = std::make_unique<Arena>(std::move(arena));
  const auto bytes = static_cast<size_t>(memory.staging_bytes);
  ASSIGN_OR_RETURN(device_, ops_.Allocate(bytes, MemoryKind::kDevice));
  ASSIGN_OR_RETURN(staging_, ops_.Allocate(bytes, MemoryKind::kHostPinned));
  bytes_ = memory.total_bytes() + memory.staging_bytes;
  const nn::CacheLayout& cache = encoder_.spec().cache;
  ASSIGN_OR_RETURN(const std::vector<AttentionShape> shapes,
                   AttentionShapes(cache, ToRunnerShape(encoder_, shape_)));
  for (const AttentionShape& attention : shapes) {
    ASSIGN_OR_RETURN(std::unique_ptr<AttentionPlan> plan, ops_.MakeAttentionPlan(attention));
    groups_.push_back({.plan = plan.get(), .slot_mapping = {}});
    plans_.push_back(std::move(plan));
  }
  for (const nn::KvLayerSpec& layer : cache.layers) {
    layers_.push_back(pool_.layers()[static_cast<size_t>(layer.group)]);
  }
  return Status();
}

int32_t ImageRunner::max_blocks() const {
  return static_cast<int32_t>(CeilDiv(encoder_.spec().max_sequence_len, shape_.block_size));
}

Status ImageRunner::Begin() {
  for (auto* list : {&positions_, &seq_lens_, &table_rows_, &tables_, &logit_rows_, &row_from_,
                     &row_to_, &newline_from_, &newline_to_}) {
    list->clear();
  }
  query_start_loc_.assign(1, 0);
  slot_mapping_.clear();
  num_blocks_ = 0;
  return ops_.Await(*uploaded_);
}

void ImageRunner::Add(const ImageLayout& layout, const std::vector<int32_t>& rows, int32_t begin,
                      int32_t length) {
  const int32_t first = num_tokens();
  const size_t rows_before = row_to_.size();
  bool here = false;  // a newline is written with the token before it
  for (size_t r = 0; r < rows.size(); ++r) {
    const int32_t token = layout.rows[r];
    if (token != ImageLayout::kNewline) here = begin <= token && token < begin + length;
    if (!here) continue;
    if (token == ImageLayout::kNewline) {
      newline_from_.push_back(0);
      newline_to_.push_back(rows[r]);
    } else {
      row_from_.push_back(static_cast<int32_t>(row_from_.size()));
      row_to_.push_back(rows[r]);
      logit_rows_.push_back(first + token - begin);
    }
  }
  if (row_to_.size() == rows_before) return;  // a tile of padding
  const auto patch = static_cast<size_t>(encoder_.spec().patch_size);
  std::memcpy(staging_.data() + static_cast<size_t>(first) * patch * sizeof(float),
              patches_.data() + static_cast<size_t>(begin) * patch,
              static_cast<size_t>(length) * patch * sizeof(float));
  positions_.insert(positions_.end(), layout.positions.begin() + begin,
                    layout.positions.begin() + begin + length);
  for (int32_t i = 0; i < length; ++i) {
    slot_mapping_.push_back(int64_t{num_blocks_} * shape_.block_size + i);
  }
  const auto blocks = static_cast<int32_t>(CeilDiv(length, shape_.block_size));
  for (int32_t b = 0; b < max_blocks(); ++b) tables_.push_back(b < blocks ? num_blocks_++ : -1);
  table_rows_.push_back(static_cast<int32_t>(seq_lens_.size()));
  seq_lens_.push_back(length);
  query_start_loc_.push_back(first + length);
}

template <typename T>
Tensor ImageRunner::Pack(const std::vector<T>& list, DType dtype, Shape shape) {
  const size_t bytes = list.size() * sizeof(T), at = packed_;
  packed_ += static_cast<size_t>(ListBytes(static_cast<int64_t>(list.size()), sizeof(T)));
  CHECK(packed_ <= staging_.size());
  if (bytes > 0) std::memcpy(staging_.data() + at, list.data(), bytes);
  return Tensor(device_.data() + at, dtype, shape);
}

void ImageRunner::Submit(Tensor cache, Stream& stream) {
  const ImageEncoderSpec& spec = encoder_.spec();
  const Tensor patches(device_.data(), DType::kF32, {num_tokens(), spec.patch_size});
  packed_ = static_cast<size_t>(ListBytes(patches.shape.elements()));
  const auto pack = [this](const std::vector<int32_t>& list) {
    return Pack(list, DType::kI32, Shape{static_cast<int64_t>(list.size())});
  };
  const auto sequences = static_cast<int64_t>(seq_lens_.size());
  const AttentionBatch batch = {
      .query_start_loc = query_start_loc_,
      .seq_lens = seq_lens_,
      .device_query_start_loc = pack(query_start_loc_),
      .device_seq_lens = pack(seq_lens_),
      .table_rows = pack(table_rows_),
      .block_tables = Pack(tables_, DType::kI32, {sequences, max_blocks()})};
  const Tensor slot_mapping = Pack(slot_mapping_, DType::kI64, Shape{num_tokens()});
  arena_->Reset();
  nn::Pass pass = {.ops = ops_,
                   .stream = stream,
                   .arena = *arena_,
                   .positions = pack(positions_),
                   .groups = groups_,
                   .kv_layers = layers_,
                   .logit_rows = pack(logit_rows_)};
  const Tensor row_from = pack(row_from_), row_to = pack(row_to_);
  const Tensor newline_from = pack(newline_from_), newline_to = pack(newline_to_);
  ops_.CopyToDevice(device_.data(), staging_.data(), packed_, stream);
  ops_.Record(*uploaded_, stream);
  for (size_t g = 0; g < plans_.size(); ++g) {
    plans_[g]->Fill(batch, stream);
    groups_[g].slot_mapping = slot_mapping;
  }
  const Tensor encoded = encoder_.Forward(pass, patches);
  ops_.Run(CopyRows{.source = encoded, .from = row_from, .to = row_to, .out = cache}, stream);
  if (newline_to_.empty()) return;
  ops_.Run(
      CopyRows{.source = encoder_.newline(), .from = newline_from, .to = newline_to, .out = cache},
      stream);
}

Status ImageRunner::Encode(std::span<const ImageView> images,
                           std::span<const std::vector<int32_t>> rows, Tensor cache,
                           Stream& stream) {
  CHECK(images.size() == rows.size() && cache.cols() == encoder_.spec().hidden_size);
  std::vector<ImageLayout> layouts;
  for (size_t i = 0; i < images.size(); ++i) {
    ASSIGN_OR_RETURN(ImageLayout layout, encoder_.Layout(images[i]));
    if (layout.rows.size() != rows[i].size()) {
      return InvalidArgument("image {} of the step becomes {} rows, not {}", i, layout.rows.size(),
                             rows[i].size());
    }
    layouts.push_back(std::move(layout));
  }
  RETURN_IF_ERROR(Begin());
  for (size_t i = 0; i < images.size(); ++i) {
    patches_.resize(layouts[i].positions.size() * static_cast<size_t>(encoder_.spec().patch_size));
    encoder_.Unfold(images[i], patches_);
    int32_t token = 0;
    for (const int32_t length : layouts[i].sequence_lens) {
      if (num_tokens() + length > shape_.max_tokens ||
          static_cast<int32_t>(seq_lens_.size()) == shape_.max_sequences) {
        Submit(cache, stream);
        RETURN_IF_ERROR(Begin());
      }
      Add(layouts[i], rows[i], token, length);
      token += length;
    }
  }
  if (num_tokens() > 0) Submit(cache, stream);
  ops_.Record(*done_, stream);
  return Status();
}

}  // namespace tokamak
