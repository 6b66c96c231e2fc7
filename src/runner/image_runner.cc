#include "runner/image_runner.h"

#include <algorithm>
#include <cstring>
#include <numeric>
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

// The most windows in a pass.
int64_t MaxWindows(const ImageEncoderSpec& spec, const ImageRunnerShape& shape) {
  if (spec.max_window_len == 0) return 0;
  return shape.max_tokens / spec.tokens_per_window + shape.max_sequences;
}

// Blocks of this many sequences in a pass.
int64_t MaxBlocks(int64_t sequences, int64_t length, const ImageRunnerShape& shape) {
  return std::min(sequences * CeilDiv(length, shape.block_size),
                  CeilDiv(shape.max_tokens, shape.block_size) + sequences);
}

int64_t ListBytes(int64_t count, int64_t element = sizeof(int32_t)) {
  return CeilDiv(count * element, kAlignment) * kAlignment;
}

// A packed pass without patches.
int64_t ListsBytes(const ImageEncoderSpec& spec, const ImageRunnerShape& shape) {
  const int64_t tokens = shape.max_tokens;
  // The block tables and the slot mapping of these sequences, and their other lists.
  const auto sequences = [&](int64_t count, int64_t length) {
    return ListBytes(tokens, sizeof(int64_t)) + 3 * ListBytes(count + 1) +
           ListBytes(count * CeilDiv(length, shape.block_size));
  };
  // Positions and the three lists of rows have at most one entry per token; so have the two of
  // newlines, but for images whose lines are empty.
  int64_t bytes = 4 * ListBytes(tokens) +
                  2 * ListBytes(tokens + int64_t{shape.max_sequences} * spec.max_image_rows) +
                  sequences(shape.max_sequences, spec.max_sequence_len);
  if (spec.max_window_len > 0) bytes += sequences(MaxWindows(spec, shape), spec.max_window_len);
  if (spec.merged_tokens > 1) {
    bytes += sequences(shape.max_sequences, spec.max_sequence_len / spec.merged_tokens);
  }
  if (spec.rope_dimensions > 0)
    bytes += ListBytes(tokens * spec.rope_dimensions) + ListBytes(tokens);
  bytes += 2 * ListBytes(tokens * spec.position_taps);  // and as many weights
  return bytes;
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
  const int64_t tokens = shape.max_tokens;
  const std::unique_ptr<CountOps> count = MakeCountOps();
  ASSIGN_OR_RETURN(const std::unique_ptr<CountingPass> counting,
                   CountingPass::Make(spec.cache, *count, ToRunnerShape(encoder, shape), tokens,
                                      /*num_logits=*/tokens / spec.tokens_per_row));
  count->Reset();
  (void)encoder.Forward(counting->pass(), Tensor(nullptr, DType::kF32, {tokens, spec.patch_size}));
  // Layers with windows use the same memory.
  const int64_t blocks = std::max(MaxBlocks(shape.max_sequences, spec.max_sequence_len, shape),
                                  MaxBlocks(MaxWindows(spec, shape), spec.max_window_len, shape));
  const int64_t block_bytes =
      KvBlockLayout::Make(OneLayerPerGroup(spec.cache), shape.block_size, shape.kv_dtype)
          .block_bytes;
  ImageRunnerMemory memory;
  memory.arena_bytes = static_cast<int64_t>(counting->arena().peak());
  memory.num_blocks = static_cast<int32_t>(blocks);
  memory.cache_bytes = blocks * block_bytes;
  memory.staging_bytes = ListBytes(tokens * spec.patch_size) + ListsBytes(spec, shape);
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
      done_(ops.MakeEvent()),
      rope_positions_(static_cast<size_t>(encoder.spec().rope_dimensions)) {
  const ImageEncoderSpec& spec = encoder.spec();
  const auto blocks = [&](int64_t length) {
    return static_cast<int32_t>(CeilDiv(length, shape.block_size));
  };
  Of(nn::ImageScope::kSequence).max_blocks = blocks(spec.max_sequence_len);
  Of(nn::ImageScope::kWindow).max_blocks = blocks(spec.max_window_len);
  if (spec.merged_tokens > 1) {
    Of(nn::ImageScope::kMerged).max_blocks = blocks(spec.max_sequence_len / spec.merged_tokens);
  }
}

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
  ASSIGN_OR_RETURN(std::vector<AttentionShape> shapes,
                   AttentionShapes(cache, ToRunnerShape(encoder_, shape_)));
  scopes_.resize(shapes.size());
  for (const nn::KvLayerSpec& layer : cache.layers) {
    scopes_[static_cast<size_t>(layer.group)] = layer.image_scope;
  }
  for (size_t g = 0; g < shapes.size(); ++g) {
    if (scopes_[g] == nn::ImageScope::kWindow) {
      shapes[g].max_seqs = static_cast<int32_t>(MaxWindows(encoder_.spec(), shape_));
    }
    shapes[g].max_blocks_per_seq = Of(scopes_[g]).max_blocks;
    ASSIGN_OR_RETURN(std::unique_ptr<AttentionPlan> plan, ops_.MakeAttentionPlan(shapes[g]));
    groups_.push_back({.plan = plan.get(), .slot_mapping = {}});
    plans_.push_back(std::move(plan));
  }
  for (const nn::KvLayerSpec& layer : cache.layers) {
    layers_.push_back(pool_.layers()[static_cast<size_t>(layer.group)]);
  }
  return Status();
}

void ImageRunner::Sequences::Clear() {
  for (auto* list : {&lens, &table_rows, &tables}) list->clear();
  query_start_loc.assign(1, 0);
  slot_mapping.clear();
  num_blocks = 0;
}

void ImageRunner::Sequences::Add(int32_t length, int32_t block_size) {
  for (int32_t i = 0; i < length; ++i) {
    slot_mapping.push_back(int64_t{num_blocks} * block_size + i);
  }
  const auto blocks = static_cast<int32_t>(CeilDiv(length, block_size));
  for (int32_t b = 0; b < max_blocks; ++b) tables.push_back(b < blocks ? num_blocks++ : -1);
  table_rows.push_back(static_cast<int32_t>(lens.size()));
  lens.push_back(length);
  query_start_loc.push_back(query_start_loc.back() + length);
}

Status ImageRunner::Begin() {
  for (auto* list : {&positions_, &logit_rows_, &row_from_, &row_to_, &newline_from_, &newline_to_,
                     &position_rows_}) {
    list->clear();
  }
  position_weights_.clear();
  for (std::vector<int32_t>& dimension : rope_positions_) dimension.clear();
  for (Sequences& sequences : sequences_) sequences.Clear();
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
      logit_rows_.push_back((first + token - begin) / encoder_.spec().merged_tokens);
    }
  }
  if (row_to_.size() == rows_before) return;  // a tile of padding
  const auto patch = static_cast<size_t>(encoder_.spec().patch_size);
  std::memcpy(staging_.data() + static_cast<size_t>(first) * patch * sizeof(float),
              patches_.data() + static_cast<size_t>(begin) * patch,
              static_cast<size_t>(length) * patch * sizeof(float));
  const auto append = [&](const auto& of_image, auto& list, int32_t per_token = 1) {
    const auto from = of_image.begin() + int64_t{begin} * per_token;
    list.insert(list.end(), from, from + int64_t{length} * per_token);
  };
  append(layout.positions, positions_);
  for (size_t d = 0; d < rope_positions_.size(); ++d) {
    append(layout.rope_positions[d], rope_positions_[d]);
  }
  append(layout.position_rows, position_rows_, encoder_.spec().position_taps);
  append(layout.position_weights, position_weights_, encoder_.spec().position_taps);
  Of(nn::ImageScope::kSequence).Add(length, shape_.block_size);
  if (const int32_t merged = encoder_.spec().merged_tokens; merged > 1) {
    Of(nn::ImageScope::kMerged).Add(length / merged, shape_.block_size);
  }
  int32_t window = 0;  // its first token
  for (const int32_t tokens : layout.window_lens) {
    if (begin <= window && window < begin + length) {
      Of(nn::ImageScope::kWindow).Add(tokens, shape_.block_size);
    }
    window += tokens;
  }
}

template <typename T>
Tensor ImageRunner::Pack(const std::vector<T>& list, DType dtype, Shape shape) {
  const size_t bytes = list.size() * sizeof(T), at = packed_;
  packed_ += static_cast<size_t>(ListBytes(static_cast<int64_t>(list.size()), sizeof(T)));
  CHECK(packed_ <= staging_.size());
  if (bytes > 0) std::memcpy(staging_.data() + at, list.data(), bytes);
  return Tensor(device_.data() + at, dtype, shape);
}

Tensor ImageRunner::Pack(const std::vector<int32_t>& list) {
  return Pack(list, DType::kI32, Shape{static_cast<int64_t>(list.size())});
}

AttentionBatch ImageRunner::Pack(const Sequences& sequences) {
  return {
      .query_start_loc = sequences.query_start_loc,
      .seq_lens = sequences.lens,
      .device_query_start_loc = Pack(sequences.query_start_loc),
      .device_seq_lens = Pack(sequences.lens),
      .table_rows = Pack(sequences.table_rows),
      .block_tables = Pack(sequences.tables, DType::kI32,
                           {static_cast<int64_t>(sequences.lens.size()), sequences.max_blocks})};
}

void ImageRunner::PackRopePositions(nn::Pass& pass) {
  std::vector<int32_t> all;
  for (const auto& dimension : rope_positions_) {
    all.insert(all.end(), dimension.begin(), dimension.end());
  }
  pass.rope_positions =
      Pack(all, DType::kI32, {static_cast<int64_t>(rope_positions_.size()), num_tokens()});
  all.resize(static_cast<size_t>(num_tokens()));
  std::iota(all.begin(), all.end(), 0);
  pass.token_indices = Pack(all);
}

void ImageRunner::PackPositionRows(nn::Pass& pass) {
  const Shape shape{num_tokens(), encoder_.spec().position_taps};
  pass.position_rows = Pack(position_rows_, DType::kI32, shape);
  pass.position_weights = Pack(position_weights_, DType::kF32, shape);
}

void ImageRunner::Submit(Tensor cache, Stream& stream) {
  const ImageEncoderSpec& spec = encoder_.spec();
  const Tensor patches(device_.data(), DType::kF32, {num_tokens(), spec.patch_size});
  packed_ = static_cast<size_t>(ListBytes(patches.shape.elements()));
  AttentionBatch batches[kScopes];
  Tensor slot_mappings[kScopes];
  for (size_t scope = 0; scope < kScopes; ++scope) {
    const Sequences& sequences = sequences_[scope];
    if (sequences.max_blocks == 0) continue;
    batches[scope] = Pack(sequences);
    slot_mappings[scope] = Pack(sequences.slot_mapping, DType::kI64,
                                Shape{static_cast<int64_t>(sequences.slot_mapping.size())});
  }
  arena_->Reset();
  nn::Pass pass = {.ops = ops_,
                   .stream = stream,
                   .arena = *arena_,
                   .positions = Pack(positions_),
                   .groups = groups_,
                   .kv_layers = layers_,
                   .logit_rows = Pack(logit_rows_)};
  if (!rope_positions_.empty()) PackRopePositions(pass);
  if (spec.position_taps > 0) PackPositionRows(pass);
  const Tensor row_from = Pack(row_from_), row_to = Pack(row_to_);
  const Tensor newline_from = Pack(newline_from_), newline_to = Pack(newline_to_);
  ops_.CopyToDevice(device_.data(), staging_.data(), packed_, stream);
  ops_.Record(*uploaded_, stream);
  for (size_t g = 0; g < plans_.size(); ++g) {
    const auto scope = static_cast<size_t>(scopes_[g]);
    plans_[g]->Fill(batches[scope], stream);
    groups_[g].slot_mapping = slot_mappings[scope];
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
  CHECK(images.size() == rows.size() && cache.cols() == encoder_.spec().row_size);
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
          static_cast<int32_t>(whole().lens.size()) == shape_.max_sequences) {
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
