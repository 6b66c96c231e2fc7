#include "models/testing/harness.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <utility>

#include "base/check.h"

namespace tokamak::testing {

struct Harness::Sequence {
  int32_t length = 0;          // positions computed so far
  int32_t num_image_rows = 0;  // of these positions
  int32_t rope_next = 0;       // the position of the next text
  int32_t known_length = 0;
  bool long_rope = false;
  std::vector<int32_t> tokens;
  std::vector<std::vector<int32_t>> blocks;  // per cache group
};

struct Harness::Group {
  std::unique_ptr<AttentionPlan> plan;
  nn::ImageScope scope = nn::ImageScope::kSequence;
  int32_t max_blocks_per_seq = 0;
  // For the current step: rebuilt by Forward, referenced by the plan.
  std::vector<int32_t> block_tables;
  std::vector<int64_t> slot_mapping;
  std::vector<int32_t> query_start_loc, seq_lens;  // of windows
};

Harness::Harness(const Model& model, Ops& ops, HarnessOptions options)
    : model_(model), ops_(ops), options_(std::move(options)), stream_(ops.MakeStream()) {
  Result<Buffer> memory = ops_.Allocate(options_.arena_bytes, MemoryKind::kDevice);
  CHECK_MSG(memory.ok(), memory.status().ToString());
  arena_ = std::make_unique<Arena>(*std::move(memory));
  MakeCache();
  if (options_.image_rows.empty()) return;
  std::vector<float> rows;
  for (const auto& row : options_.image_rows) rows.insert(rows.end(), row.begin(), row.end());
  const auto count = static_cast<int64_t>(options_.image_rows.size());
  Result<nn::OwnedTensor> uploaded =
      nn::Upload(ops_, rows, {count, static_cast<int64_t>(rows.size()) / count});
  CHECK_MSG(uploaded.ok(), uploaded.status().ToString());
  image_rows_ = *std::move(uploaded);
}

Harness::~Harness() = default;

// Every block is large enough for all layers of the largest group, and can serve any group.
void Harness::MakeCache() {
  const nn::CacheLayout& layout = model_.spec().cache;
  std::vector<int64_t> group_bytes(layout.groups.size());
  for (const nn::KvLayerSpec& layer : layout.layers) {
    const auto bytes = [&](int32_t dim) {
      return static_cast<int64_t>(
          RowBytes(options_.kv_dtype, int64_t{layer.num_kv_heads} * options_.block_size * dim));
    };
    const int64_t keys = bytes(layer.head_dim);
    KvLayerView view = layer.View();
    view.k_offset = group_bytes[static_cast<size_t>(layer.group)];
    view.v_offset = view.k_offset + layer.ValuesAfter(options_.kv_dtype, keys);
    view.dtype = options_.kv_dtype;
    view.block_size = options_.block_size;
    views_.push_back(view);
    group_bytes[static_cast<size_t>(layer.group)] += keys + bytes(layer.StoredValueDim());
  }
  const int64_t block_bytes = *std::max_element(group_bytes.begin(), group_bytes.end());
  Result<Buffer> memory =
      ops_.Allocate(static_cast<size_t>(block_bytes * options_.num_blocks), MemoryKind::kDevice);
  CHECK_MSG(memory.ok(), memory.status().ToString());
  cache_ = *std::move(memory);
  for (KvLayerView& view : views_) {
    view.base = cache_.data();
    view.block_stride = block_bytes;
  }

  for (size_t g = 0; g < layout.groups.size(); ++g) {
    const auto layer = std::find_if(
        layout.layers.begin(), layout.layers.end(),
        [&](const nn::KvLayerSpec& spec) { return static_cast<size_t>(spec.group) == g; });
    CHECK(layer != layout.layers.end());
    AttentionShape shape = layer->Attention();
    shape.block_size = options_.block_size;
    shape.window = layout.groups[g].window;
    shape.kv_dtype = options_.kv_dtype;
    shape.bidirectional = layout.bidirectional_images;
    shape.max_seqs = options_.max_seqs;
    shape.max_tokens = options_.max_tokens;
    shape.max_blocks_per_seq = options_.num_blocks;
    Result<std::unique_ptr<AttentionPlan>> plan = ops_.MakeAttentionPlan(shape);
    CHECK_MSG(plan.ok(), plan.status().ToString());
    Group& group = groups_.emplace_back();
    group.plan = *std::move(plan);
    group.scope = layer->image_scope;
  }

  const auto state_bytes = static_cast<size_t>(layout.StateBytes() * options_.max_seqs);
  if (state_bytes > 0) {
    Result<Buffer> states = ops_.Allocate(state_bytes, MemoryKind::kDevice);
    CHECK_MSG(states.ok(), states.status().ToString());
    states_ = *std::move(states);
    state_views_ = layout.StateViews(reinterpret_cast<float*>(states_.data()));
  }

  free_blocks_.resize(static_cast<size_t>(options_.num_blocks));
  std::iota(free_blocks_.begin(), free_blocks_.end(), 0);
  std::mt19937_64 random(options_.seed);
  std::shuffle(free_blocks_.begin(), free_blocks_.end(), random);
}

int Harness::AddSequence(int32_t known_length) {
  sequences_.emplace_back().blocks.resize(groups_.size());
  sequences_.back().known_length = known_length;
  return static_cast<int>(sequences_.size()) - 1;
}

int32_t Harness::length(int sequence) const {
  return sequences_[static_cast<size_t>(sequence)].length;
}

void Harness::Extend(Sequence& sequence, int32_t num_tokens) {
  sequence.length += num_tokens;
  for (size_t g = 0; g < groups_.size(); ++g) {
    std::vector<int32_t>& blocks = sequence.blocks[g];
    const int32_t last = PlaceOf(groups_[g], sequence.length - 1);
    while (static_cast<int32_t>(blocks.size()) * options_.block_size <= last) {
      CHECK_MSG(!free_blocks_.empty(), "the harness has too few blocks for this test");
      blocks.push_back(free_blocks_.back());
      free_blocks_.pop_back();
    }
  }
}

int32_t Harness::PlaceOf(const Group& group, int32_t position) const {
  if (group.scope == nn::ImageScope::kSequence) return position;
  if (group.scope == nn::ImageScope::kMerged) return position / options_.merged_tokens;
  int32_t begin = 0;  // of the window, among blocks
  for (const int32_t length : options_.window_lens) {
    if (position < length) break;
    position -= length;
    begin += (length + options_.block_size - 1) / options_.block_size * options_.block_size;
  }
  return begin + position;
}

std::array<int32_t, 3> Harness::NextRopePosition(Sequence& sequence, bool shows_image) const {
  if (!shows_image) {
    const int32_t at = sequence.rope_next++;
    return {at, at, at};
  }
  int32_t row = sequence.num_image_rows;
  for (const auto& [height, width] : options_.image_grids) {
    if (row >= height * width) {
      row -= height * width;
      continue;
    }
    const int32_t at = sequence.rope_next;
    if (row + 1 == height * width) sequence.rope_next += std::max(height, width);
    return {at, at + row / width, at + row % width};
  }
  CHECK_MSG(false, "image_grids are of fewer rows than image_rows");
  return {};
}

void Harness::SetRopePositions(const std::vector<std::array<int32_t, 3>>& all, nn::Pass& pass) {
  rope_positions_.clear();
  for (size_t d = 0; d < 3; ++d) {
    for (const auto& token : all) rope_positions_.push_back(token[d]);
  }
  for (const auto& dimension : options_.rope_positions) {
    rope_positions_.insert(rope_positions_.end(), dimension.begin(), dimension.end());
  }
  const auto count = static_cast<int64_t>(rope_positions_.size());
  pass.rope_positions = Upload(rope_positions_.data(), DType::kI32, count);
  pass.rope_positions.shape = {count / pass.num_tokens(), pass.num_tokens()};
  pass.rope_positions.row_stride = pass.num_tokens() * static_cast<int64_t>(sizeof(int32_t));
  token_indices_.resize(static_cast<size_t>(pass.num_tokens()));
  std::iota(token_indices_.begin(), token_indices_.end(), 0);
  pass.token_indices = Upload(token_indices_.data(), DType::kI32, pass.num_tokens());
}

void Harness::SetPositionRows(nn::Pass& pass) {
  const auto count = static_cast<int64_t>(options_.position_rows.size());
  const Shape shape{pass.num_tokens(), count / pass.num_tokens()};
  pass.position_rows =
      Tensor(Upload(options_.position_rows.data(), DType::kI32, count).data, DType::kI32, shape);
  pass.position_weights =
      Tensor(Upload(options_.position_weights.data(), DType::kF32, count).data, DType::kF32, shape);
}

Tensor Harness::Upload(const void* data, DType dtype, int64_t count) {
  Tensor tensor = arena_->Allocate(dtype, Shape{count});
  ops_.CopyToDevice(tensor.data, data, RowBytes(dtype, count), *stream_);
  return tensor;
}

Harness::Row Harness::Switch(Row row) {
  Sequence& sequence = sequences_[static_cast<size_t>(row.sequence)];
  sequence.tokens.insert(sequence.tokens.end(), row.tokens.begin(), row.tokens.end());
  const int32_t original_context = model_.spec().cache.original_context;
  const int32_t known =
      std::max(static_cast<int32_t>(sequence.tokens.size()), sequence.known_length);
  if (!sequence.long_rope && UsesLongRope(original_context, known)) {
    sequence.long_rope = true;
    sequence.length = sequence.num_image_rows = sequence.rope_next = 0;
    row.tokens = sequence.tokens;
  }
  return row;
}

std::vector<nn::AttentionMetadata> Harness::FillPlans(const std::vector<Row>& rows,
                                                      const std::vector<int32_t>& query_start_loc,
                                                      const std::vector<int32_t>& seq_lens) {
  std::vector<nn::AttentionMetadata> metadata;
  table_rows_.resize(std::max(rows.size(), options_.window_lens.size()));
  std::iota(table_rows_.begin(), table_rows_.end(), 0);
  for (size_t g = 0; g < groups_.size(); ++g) {
    Group& group = groups_[g];
    const auto stride = static_cast<size_t>(options_.num_blocks);
    group.query_start_loc = query_start_loc;
    group.seq_lens = seq_lens;
    const bool windows = group.scope == nn::ImageScope::kWindow;
    if (group.scope == nn::ImageScope::kMerged) {
      for (int32_t& begin : group.query_start_loc) begin /= options_.merged_tokens;
      for (int32_t& length : group.seq_lens) length /= options_.merged_tokens;
    } else if (windows) {
      CHECK(rows.size() == 1);
      group.query_start_loc = {0};
      group.seq_lens = options_.window_lens;
      for (const int32_t length : group.seq_lens) {
        group.query_start_loc.push_back(group.query_start_loc.back() + length);
      }
    }
    const auto num_rows = static_cast<int64_t>(group.seq_lens.size());
    group.block_tables.assign(group.seq_lens.size() * stride, -1);
    for (size_t s = 0; s < group.seq_lens.size(); ++s) {
      const size_t row = windows ? 0 : s;
      const auto& blocks = sequences_[static_cast<size_t>(rows[row].sequence)].blocks[g];
      const int32_t first =
          windows ? PlaceOf(group, group.query_start_loc[s]) / options_.block_size : 0;
      std::copy(blocks.begin() + first, blocks.end(), group.block_tables.begin() + s * stride);
    }
    AttentionBatch batch;
    batch.query_start_loc = group.query_start_loc;
    batch.seq_lens = group.seq_lens;
    batch.device_query_start_loc = Upload(group.query_start_loc.data(), DType::kI32, num_rows + 1);
    batch.device_seq_lens = Upload(group.seq_lens.data(), DType::kI32, num_rows);
    batch.table_rows = Upload(table_rows_.data(), DType::kI32, num_rows);
    const Tensor tables = Upload(group.block_tables.data(), DType::kI32,
                                 static_cast<int64_t>(group.block_tables.size()));
    batch.block_tables = Tensor(tables.data, DType::kI32, {num_rows, static_cast<int64_t>(stride)});
    batch.bidirectional = bidirectional_;
    group.plan->Fill(batch, *stream_);
    const auto count = static_cast<int64_t>(group.slot_mapping.size());
    metadata.push_back({group.plan.get(), Upload(group.slot_mapping.data(), DType::kI64, count)});
  }
  return metadata;
}

void Harness::SetStates(const std::vector<Row>& rows, const std::vector<int32_t>& query_start_loc,
                        const std::vector<int32_t>& seq_lens, nn::Pass& pass) {
  state_slots_.clear();
  for (const Row& row : rows) {
    CHECK(row.sequence >= static_cast<int>(sequences_.size()) - options_.max_seqs);
    state_slots_.push_back(row.sequence % options_.max_seqs);
  }
  const auto num_rows = static_cast<int64_t>(rows.size());
  pass.state_layers = state_views_;
  pass.states.query_start_loc = query_start_loc;
  pass.states.seq_lens = seq_lens;
  pass.states.device_query_start_loc = Upload(query_start_loc.data(), DType::kI32, num_rows + 1);
  pass.states.device_seq_lens = Upload(seq_lens.data(), DType::kI32, num_rows);
  pass.states.slots = Upload(state_slots_.data(), DType::kI32, num_rows);
}

std::vector<Harness::Logits> Harness::Forward(const std::vector<Row>& rows) {
  std::vector<int32_t> ids, positions, logit_rows, seq_lens, query_start_loc = {0};
  std::vector<int32_t> image_from, image_to;
  std::vector<std::array<int32_t, 3>> rope_positions;
  bool planar = !options_.rope_positions.empty();  // positions of a token may differ
  bidirectional_.clear();
  for (Group& group : groups_) group.slot_mapping.clear();
  for (const Row& given : rows) {
    const Row row = Switch(given);
    Sequence& sequence = sequences_[static_cast<size_t>(row.sequence)];
    const int32_t offset = LongRopeOffset(model_.spec().cache.original_context, sequence.long_rope);
    const int32_t begin = sequence.length;
    const auto count = static_cast<int32_t>(row.tokens.size());
    Extend(sequence, count);
    for (int32_t i = 0; i < count; ++i) {
      const int32_t position = begin + i;
      const auto index = static_cast<int32_t>(ids.size());
      const bool left = index % options_.merged_tokens == 0;  // if tokens are merged
      if (i >= count - row.num_logits && left) {
        logit_rows.push_back(index / options_.merged_tokens);
      }
      const int32_t token = row.tokens[static_cast<size_t>(i)];
      const bool shows_image =
          token == model_.spec().image_token && sequence.num_image_rows < image_rows_.tensor.rows();
      if (model_.spec().cache.rope_dimensions > 1) {
        rope_positions.push_back(NextRopePosition(sequence, shows_image));
        positions.push_back(rope_positions.back()[0]);
        planar = planar || shows_image;
      } else {
        positions.push_back(offset + position);
      }
      if (shows_image) AddToRange(std::ssize(ids), /*first=*/i == 0);
      if (shows_image) {
        image_from.push_back(sequence.num_image_rows++);
        image_to.push_back(static_cast<int32_t>(ids.size()));
      }
      ids.push_back(token);
      for (size_t g = 0; g < groups_.size(); ++g) {
        if (groups_[g].scope == nn::ImageScope::kMerged && !left) continue;
        const int32_t place = PlaceOf(groups_[g], position);
        const int32_t block = sequence.blocks[g][static_cast<size_t>(place / options_.block_size)];
        groups_[g].slot_mapping.push_back(int64_t{block} * options_.block_size +
                                          place % options_.block_size);
      }
    }
    query_start_loc.push_back(static_cast<int32_t>(ids.size()));
    seq_lens.push_back(sequence.length);
  }

  arena_->Reset();
  const std::vector<nn::AttentionMetadata> metadata = FillPlans(rows, query_start_loc, seq_lens);
  const auto num_tokens = static_cast<int64_t>(ids.size());
  nn::Pass pass{.ops = ops_,
                .stream = *stream_,
                .arena = *arena_,
                .token_ids = Upload(ids.data(), DType::kI32, num_tokens),
                .positions = Upload(positions.data(), DType::kI32, num_tokens),
                .groups = metadata,
                .kv_layers = views_,
                .logit_rows = Upload(logit_rows.data(), DType::kI32,
                                     static_cast<int64_t>(logit_rows.size()))};
  if (!options_.image_rows.empty()) {
    const auto count = static_cast<int64_t>(image_from.size());
    pass.image_rows = image_rows_.tensor;
    pass.image_from = Upload(image_from.data(), DType::kI32, count);
    pass.image_to = Upload(image_to.data(), DType::kI32, count);
  }
  if (!state_views_.empty()) SetStates(rows, query_start_loc, seq_lens, pass);
  if (planar) SetRopePositions(rope_positions, pass);
  if (!options_.position_rows.empty()) SetPositionRows(pass);
  const Tensor hidden = model_.Forward(pass);
  CHECK(hidden.rows() == static_cast<int64_t>(logit_rows.size()));
  return ReadLogits(pass, hidden);
}

std::vector<Harness::Logits> Harness::ReadLogits(nn::Pass& pass, Tensor hidden) {
  constexpr int64_t kChunk = 64;  // bounds the memory of logits
  std::vector<Logits> result;
  for (int64_t begin = 0; begin < hidden.rows(); begin += kChunk) {
    const ArenaScope scope(*arena_);
    const Tensor rows = hidden.Rows(begin, std::min(begin + kChunk, hidden.rows()));
    const Tensor logits = options_.hidden_states ? rows : model_.Logits(pass, rows);
    for (int64_t i = 0; i < logits.rows(); ++i) {
      Logits& row = result.emplace_back(static_cast<size_t>(logits.cols()));
      ops_.CopyToHost(row.data(), logits.RowData(i), row.size() * sizeof(float), *stream_);
    }
    const Status status = ops_.Synchronize(*stream_);
    CHECK_MSG(status.ok(), status.ToString());
  }
  return result;
}

void Harness::AddToRange(int64_t token, bool first) {
  if (!model_.spec().cache.bidirectional_images) return;
  if (first || bidirectional_.empty() || bidirectional_.back().end < token) {
    bidirectional_.push_back({token, token});
  }
  bidirectional_.back().end = token + 1;
}

int32_t Harness::PrefixOf(const std::vector<int32_t>& tokens, int32_t count) const {
  const auto shows_image = [&](int32_t at) {
    return tokens[static_cast<size_t>(at)] == model_.spec().image_token;
  };
  if (!model_.spec().cache.bidirectional_images) return count;
  while (count < std::ssize(tokens) && shows_image(count) && shows_image(count - 1)) ++count;
  return count;
}

std::vector<Harness::Logits> Harness::Run(const std::vector<int32_t>& tokens, int32_t num_logits,
                                          int32_t chunk) {
  const auto total = static_cast<int32_t>(tokens.size());
  const int sequence = AddSequence(total);
  std::vector<Logits> result;
  for (int32_t begin = 0, end = 0; begin < total; begin = end) {
    end = PrefixOf(tokens, begin + std::min(chunk, total - begin));
    Row row;
    row.sequence = sequence;
    row.tokens.assign(tokens.begin() + begin, tokens.begin() + end);
    row.num_logits = std::clamp(end - (total - num_logits), 0, end - begin);
    for (Logits& logits : Forward({row})) result.push_back(std::move(logits));
  }
  return result;
}

int32_t Argmax(const Harness::Logits& logits) {
  return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

}  // namespace tokamak::testing
