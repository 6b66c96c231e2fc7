#include "runner/embedding_runner.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "base/ceil_div.h"
#include "base/check.h"
#include "base/error.h"
#include "runner/attention_shapes.h"
#include "runner/counting_pass.h"

namespace tokamak {
namespace {

constexpr int64_t kAlignment = 64;  // alignment of a step's parts, in bytes

bool IsCausal(const nn::CacheLayout& cache) {
  return std::all_of(cache.layers.begin(), cache.layers.end(),
                     [](const auto& layer) { return layer.causal; });
}

// Enough for a batch of short texts, each with a partly filled last block, and for one long text.
int64_t BlocksPerGroup(const EmbeddingShape& shape) {
  return std::max<int64_t>(CeilDiv(shape.max_length, shape.block_size),
                           CeilDiv(shape.max_tokens, shape.block_size) + shape.max_texts);
}

}  // namespace

RunnerShape ToRunnerShape(const EmbeddingShape& shape) {
  RunnerShape runner;
  runner.max_seqs = shape.max_texts;
  runner.max_step_tokens = shape.max_tokens;
  runner.max_context = shape.max_length;
  runner.block_size = shape.block_size;
  runner.kv_dtype = shape.kv_dtype;
  return runner;
}

Result<EmbeddingMemory> ProfileEmbedding(const Model& model, const EmbeddingShape& shape) {
  const nn::CacheLayout& cache = model.spec().cache;
  if (!cache.state_layers.empty()) {
    return Unimplemented("{}: making embeddings with layers that keep a state is not supported",
                         model.spec().architecture);
  }
  const std::unique_ptr<CountOps> count = MakeCountOps();
  // Pooling by mean needs the hidden states of all tokens.
  ASSIGN_OR_RETURN(
      const std::unique_ptr<CountingPass> counting,
      CountingPass::Make(cache, *count, ToRunnerShape(shape), shape.max_tokens, shape.max_tokens));
  (void)model.Forward(counting->pass());
  EmbeddingMemory memory;
  memory.arena_bytes = static_cast<int64_t>(counting->arena().peak());
  const auto groups = static_cast<int64_t>(cache.groups.size());
  const int64_t blocks = BlocksPerGroup(shape) * groups;
  if (blocks > INT32_MAX) {
    return InvalidArgument("a batch would need {} KV blocks; lower max_batch_tokens or max_context",
                           blocks);
  }
  memory.num_blocks = static_cast<int32_t>(blocks);
  memory.cache_bytes =
      blocks * KvBlockLayout::Make(cache, shape.block_size, shape.kv_dtype).block_bytes;
  const int64_t tables = groups * shape.max_texts * CeilDiv(shape.max_length, shape.block_size);
  memory.staging_bytes = 4 * (3 * int64_t{shape.max_tokens} + 3 * (shape.max_texts + 1) + tables) +
                         8 * groups * shape.max_tokens + kAlignment * (6 + 2 * groups);
  return memory;
}

EmbeddingRunner::EmbeddingRunner(std::unique_ptr<Ops> ops, std::unique_ptr<const Model> model,
                                 const EmbeddingShape& shape, KvPool pool)
    : ops_(std::move(ops)),
      model_(std::move(model)),
      shape_(shape),
      causal_(IsCausal(model_->spec().cache)),
      pool_(std::move(pool)),
      stream_(ops_->MakeStream()) {}

EmbeddingRunner::~EmbeddingRunner() { (void)ops_->Synchronize(*stream_); }

Result<std::unique_ptr<EmbeddingRunner>> EmbeddingRunner::Create(std::unique_ptr<Ops> ops,
                                                                 std::unique_ptr<const Model> model,
                                                                 const EmbeddingShape& shape) {
  if (shape.max_tokens < 1 || shape.max_texts < 1 || shape.max_length < 1 || shape.block_size < 1) {
    return InvalidArgument(
        "an embedding runner needs at least one token, one text and one position");
  }
  if (!IsCausal(model->spec().cache) && shape.max_length > shape.max_tokens) {
    return InvalidArgument("a text of {} tokens must fit into one step, which takes {}",
                           shape.max_length, shape.max_tokens);
  }
  ASSIGN_OR_RETURN(const EmbeddingMemory memory, ProfileEmbedding(*model, shape));
  ASSIGN_OR_RETURN(KvPool pool, KvPool::Create(*ops, model->spec().cache,
                                               {.block_size = shape.block_size,
                                                .dtype = shape.kv_dtype,
                                                .num_device_blocks = memory.num_blocks,
                                                .num_host_blocks = 0}));
  std::unique_ptr<EmbeddingRunner> runner(
      new EmbeddingRunner(std::move(ops), std::move(model), shape, std::move(pool)));
  RETURN_IF_ERROR(runner->Init(memory));
  return runner;
}

Status EmbeddingRunner::Init(const EmbeddingMemory& memory) {
  ASSIGN_OR_RETURN(Buffer arena,
                   ops_->Allocate(static_cast<size_t>(memory.arena_bytes), MemoryKind::kDevice));
  const size_t arena_bytes = arena.size();
  arena_ = std::make_unique<Arena>(std::move(arena));
  const auto bytes = static_cast<size_t>(memory.staging_bytes);
  ASSIGN_OR_RETURN(device_, ops_->Allocate(bytes, MemoryKind::kDevice));
  ASSIGN_OR_RETURN(staging_, ops_->Allocate(bytes, MemoryKind::kHostPinned));
  bytes_ = static_cast<int64_t>(arena_bytes + device_.size() + staging_.size()) +
           pool_.spec().num_device_blocks * pool_.spec().block_bytes;
  ASSIGN_OR_RETURN(const std::vector<AttentionShape> shapes,
                   AttentionShapes(model_->spec().cache, ToRunnerShape(shape_)));
  for (const AttentionShape& attention : shapes) {
    ASSIGN_OR_RETURN(std::unique_ptr<AttentionPlan> plan, ops_->MakeAttentionPlan(attention));
    groups_.push_back({.plan = plan.get(), .slot_mapping = {}});
    plans_.push_back(std::move(plan));
  }
  slot_mapping_.resize(plans_.size());
  tables_.resize(plans_.size());
  return Status();
}

int32_t EmbeddingRunner::max_blocks() const {
  return static_cast<int32_t>(CeilDiv(shape_.max_length, shape_.block_size));
}

void EmbeddingRunner::AssignBlocks(std::span<const Text> texts) {
  first_block_.clear();
  int32_t next = 0;
  for (const Text& text : texts) {
    first_block_.push_back(next);
    next += static_cast<int32_t>(
        CeilDiv(static_cast<int64_t>(text.size()), int64_t{shape_.block_size}));
  }
  const int64_t per_group = BlocksPerGroup(shape_);
  CHECK(next <= per_group);
  for (size_t g = 0; g < tables_.size(); ++g) {
    const auto base = static_cast<int32_t>(static_cast<int64_t>(g) * per_group);
    tables_[g].assign(texts.size() * static_cast<size_t>(max_blocks()), -1);
    for (size_t s = 0; s < texts.size(); ++s) {
      const int32_t end = s + 1 < texts.size() ? first_block_[s + 1] : next;
      int32_t* const table = tables_[g].data() + s * static_cast<size_t>(max_blocks());
      for (int32_t b = first_block_[s]; b < end; ++b) table[b - first_block_[s]] = base + b;
    }
  }
}

void EmbeddingRunner::Pack(std::span<const Text> texts, Chunk chunk) {
  for (auto* list : {&token_ids_, &positions_, &rows_, &row_texts_, &seq_lens_, &table_rows_}) {
    list->clear();
  }
  query_start_loc_.assign(1, 0);
  for (auto& slot_mapping : slot_mapping_) slot_mapping.clear();
  const int64_t per_group = BlocksPerGroup(shape_);
  for (size_t s = 0; s < texts.size(); ++s) {
    const auto length = static_cast<int32_t>(texts[s].size());
    const int32_t end = std::min(chunk.end, length);
    const int32_t original_context = model_->spec().cache.original_context;
    const int32_t rope_offset =
        LongRopeOffset(original_context, UsesLongRope(original_context, length));
    for (int32_t position = chunk.begin; position < end; ++position) {
      const bool wanted = shape_.pooling == Pooling::kMean ||
                          (shape_.pooling == Pooling::kCls && position == 0) ||
                          (shape_.pooling == Pooling::kLast && position == length - 1);
      if (wanted) {
        rows_.push_back(static_cast<int32_t>(token_ids_.size()));
        row_texts_.push_back(static_cast<int32_t>(s));
      }
      token_ids_.push_back(texts[s][static_cast<size_t>(position)]);
      positions_.push_back(rope_offset + position);
      const int64_t block = first_block_[s] + position / shape_.block_size;
      for (size_t g = 0; g < slot_mapping_.size(); ++g) {
        slot_mapping_[g].push_back((static_cast<int64_t>(g) * per_group + block) *
                                       shape_.block_size +
                                   position % shape_.block_size);
      }
    }
    query_start_loc_.push_back(static_cast<int32_t>(token_ids_.size()));
    seq_lens_.push_back(std::max(end, 0));
    table_rows_.push_back(static_cast<int32_t>(s));
  }

  layout_ = {};
  const auto add = [this](const void* data, size_t bytes) {
    const int64_t at = layout_.bytes;
    CHECK(static_cast<size_t>(at) + bytes <= staging_.size());
    if (bytes > 0) std::memcpy(staging_.data() + at, data, bytes);
    layout_.bytes = CeilDiv(at + static_cast<int64_t>(bytes), kAlignment) * kAlignment;
    return at;
  };
  const auto add_ints = [&](const std::vector<int32_t>& list) {
    return add(list.data(), list.size() * sizeof(int32_t));
  };
  layout_.token_ids = add_ints(token_ids_);
  layout_.positions = add_ints(positions_);
  layout_.rows = add_ints(rows_);
  layout_.query_start_loc = add_ints(query_start_loc_);
  layout_.seq_lens = add_ints(seq_lens_);
  layout_.table_rows = add_ints(table_rows_);
  for (size_t g = 0; g < slot_mapping_.size(); ++g) {
    const int64_t slot_mapping =
        add(slot_mapping_[g].data(), slot_mapping_[g].size() * sizeof(int64_t));
    if (g == 0) layout_.slot_mapping = slot_mapping;
  }
  for (size_t g = 0; g < tables_.size(); ++g) {
    const int64_t tables = add_ints(tables_[g]);
    if (g == 0) layout_.block_tables = tables;
  }
  ops_->CopyToDevice(device_.data(), staging_.data(), static_cast<size_t>(layout_.bytes), *stream_);
}

nn::Pass EmbeddingRunner::MakePass() {
  const auto ints = [this](int64_t offset, size_t count) {
    return Tensor(device_.data() + offset, DType::kI32, Shape{static_cast<int64_t>(count)});
  };
  const auto aligned = [](size_t bytes) {
    return CeilDiv(static_cast<int64_t>(bytes), kAlignment) * kAlignment;
  };
  const int64_t slot_bytes = aligned(token_ids_.size() * sizeof(int64_t));
  const auto texts = static_cast<int64_t>(seq_lens_.size());
  const int64_t table_bytes =
      aligned(static_cast<size_t>(texts) * static_cast<size_t>(max_blocks()) * sizeof(int32_t));
  for (size_t g = 0; g < plans_.size(); ++g) {
    const auto group = static_cast<int64_t>(g);
    plans_[g]->Fill(
        {.query_start_loc = query_start_loc_,
         .seq_lens = seq_lens_,
         .device_query_start_loc = ints(layout_.query_start_loc, query_start_loc_.size()),
         .device_seq_lens = ints(layout_.seq_lens, seq_lens_.size()),
         .table_rows = ints(layout_.table_rows, table_rows_.size()),
         .block_tables = Tensor(device_.data() + layout_.block_tables + group * table_bytes,
                                DType::kI32, Shape{texts, max_blocks()})},
        *stream_);
    groups_[g].slot_mapping = Tensor(device_.data() + layout_.slot_mapping + group * slot_bytes,
                                     DType::kI64, Shape{static_cast<int64_t>(token_ids_.size())});
  }
  arena_->Reset();
  return {.ops = *ops_,
          .stream = *stream_,
          .arena = *arena_,
          .token_ids = ints(layout_.token_ids, token_ids_.size()),
          .positions = ints(layout_.positions, positions_.size()),
          .groups = groups_,
          .kv_layers = pool_.layers(),
          .logit_rows = ints(layout_.rows, rows_.size())};
}

Status EmbeddingRunner::Step(std::span<const Text> texts, Chunk chunk,
                             std::vector<std::vector<double>>& sums) {
  Pack(texts, chunk);
  nn::Pass pass = MakePass();
  const Tensor hidden = model_->Forward(pass);
  CHECK(hidden.dtype == DType::kF32 && hidden.cols() == dimensions());
  const auto width = static_cast<size_t>(dimensions());
  hidden_.resize(rows_.size() * width);
  ops_->CopyToHost(hidden_.data(), hidden.data, hidden_.size() * sizeof(float), *stream_);
  RETURN_IF_ERROR(ops_->Synchronize(*stream_));
  for (size_t r = 0; r < rows_.size(); ++r) {
    std::vector<double>& sum = sums[static_cast<size_t>(row_texts_[r])];
    for (size_t i = 0; i < width; ++i) sum[i] += hidden_[r * width + i];
  }
  return Status();
}

std::vector<float> EmbeddingRunner::Finish(const std::vector<double>& sum,
                                           size_t num_tokens) const {
  double scale = shape_.pooling == Pooling::kMean ? 1 / static_cast<double>(num_tokens) : 1;
  if (shape_.normalize) {
    double squares = 0;
    for (const double x : sum) squares += x * scale * x * scale;
    scale /= std::max(std::sqrt(squares), 1e-12);  // like the reference if all values are 0
  }
  std::vector<float> vector;
  vector.reserve(sum.size());
  for (const double x : sum) vector.push_back(static_cast<float>(x * scale));
  return vector;
}

Result<std::vector<std::vector<float>>> EmbeddingRunner::Run(std::span<const Text> texts) {
  CHECK(texts.size() <= static_cast<size_t>(shape_.max_texts));
  int64_t total = 0;
  for (const Text& text : texts) {
    CHECK(!text.empty() && text.size() <= static_cast<size_t>(shape_.max_length));
    total += static_cast<int64_t>(text.size());
  }
  CHECK(total <= shape_.max_tokens || texts.size() == 1);
  AssignBlocks(texts);
  std::vector<std::vector<double>> sums(texts.size(),
                                        std::vector<double>(static_cast<size_t>(dimensions())));
  int32_t longest = 0;
  for (const Text& text : texts) longest = std::max(longest, static_cast<int32_t>(text.size()));
  // One step, unless a single text exceeds it; only causal models allow that.
  for (int32_t begin = 0; begin < longest; begin += shape_.max_tokens) {
    const Chunk chunk{begin, std::min(longest, begin + shape_.max_tokens)};
    CHECK(causal_ || (chunk.begin == 0 && chunk.end == longest));
    RETURN_IF_ERROR(Step(texts, chunk, sums));
  }
  std::vector<std::vector<float>> vectors;
  vectors.reserve(texts.size());
  for (size_t s = 0; s < texts.size(); ++s) {
    vectors.push_back(Finish(sums[s], texts[s].size()));
  }
  return vectors;
}

}  // namespace tokamak
